/** Messages between a page and the worker that runs its network. */
export {};
