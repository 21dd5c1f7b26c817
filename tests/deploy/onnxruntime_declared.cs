// As much of Microsoft.ML.OnnxRuntime as programs on the page of an export use, declared as its API
// reference declares it: a compiler holds those programs against it where there is no package.
using System;
using System.Collections.Generic;

namespace Microsoft.ML.OnnxRuntime
{
    public struct Float16 { }

    public class SessionOptions : IDisposable
    {
        public void RegisterCustomOpLibrary(string libraryPath) { }
        public void RegisterCustomOpLibraryV2(string libraryPath, out IntPtr libraryHandle)
        {
            libraryHandle = IntPtr.Zero;
        }
        public void Dispose() { }
    }

    public interface IDisposableReadOnlyCollection<T> : IReadOnlyCollection<T>, IDisposable { }

    public class NamedOnnxValue
    {
        public static NamedOnnxValue CreateFromTensor<T>(string name, Tensors.Tensor<T> value)
        {
            return null;
        }
        public Tensors.Tensor<T> AsTensor<T>() { return null; }
    }

    public class DisposableNamedOnnxValue : NamedOnnxValue, IDisposable
    {
        public void Dispose() { }
    }

    public class InferenceSession : IDisposable
    {
        public InferenceSession(string modelPath) { }
        public InferenceSession(string modelPath, SessionOptions options) { }
        public IDisposableReadOnlyCollection<DisposableNamedOnnxValue> Run(
            IReadOnlyCollection<NamedOnnxValue> inputs)
        {
            return null;
        }
        public void Dispose() { }
    }
}

namespace Microsoft.ML.OnnxRuntime.Tensors
{
    public abstract class Tensor<T> { }

    public class DenseTensor<T> : Tensor<T>
    {
        public DenseTensor(ReadOnlySpan<int> dimensions, bool reverseStride = false) { }
    }
}
