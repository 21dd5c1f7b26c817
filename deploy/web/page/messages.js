/** What a page and the worker that runs its network say to each other. */
export {};
