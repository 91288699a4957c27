package tritonlib

import "github.com/tutti-server/tutti/backends"

// Name is the name of the factory. A model that names it as its backend needs a libtriton_tritonlib.so, as for any other name.
const Name = backends.LibraryBackend

func guide() backends.Guide {
	return backends.Guide{
		Doc: "Serves models whose backend is a library made for Triton, `libtriton_NAME.so`, for `backend: \"NAME\"`. The library is looked for in the " +
			"folder of the version, in the folder of the model, and, for a backend that is not built in, in the folder `NAME` of `--backend-directory`. " +
			"It is loaded in a process of its own for each version of a model, so its crash ends no other model. Nothing is compiled and nothing of Triton " +
			"is needed. Settings are those of `--backend-config=NAME,KEY=VALUE`. [triton-backends.md](triton-backends.md) has the calls that are supported.",
		Limits: "Libraries are on the CPU: instances of KIND_GPU are refused. A library that calls the server, for example to call other models (`TRITONSERVER_ServerInferAsync`), " +
			"is refused with the names of the calls that are missing. An instance of a model that is not decoupled takes the next batch when the library has released the requests of the last one. " +
			"All instances of a version share a process.",
	}
}
