package tensorflow

import "github.com/tutti-server/tutti/backends"

var guide = backends.Guide{
	Doc: "Serves SavedModels (Keras models exported as such, too) and graphs. The platform names the format; without one the file " +
		"that is there does. A graph's inputs and outputs have to be declared: it does not tell them apart from other tensors.",
	Limits: "Sparse and ragged tensors, resources, variants, complex and quantised types, GPUs, custom operator libraries, execution " +
		"accelerators and Keras files are refused by name at load. The C interface cannot stop a run: the batch of a request that is cancelled runs on.",
	Params: []backends.Param{
		{Key: keyIntra, Doc: "Threads within an operation; the first session's are those of the process"},
		{Key: keyInter, Doc: "Threads over operations, likewise"},
		{Key: keyPerSession, Doc: "Gives each session threads of its own"},
		{Key: keyShare, Doc: "How many instances share a session with its weights; 1 by default, as in Triton"},
		{Key: keyTag, Doc: "The tag of the graph in the SavedModel, `serve` by default"},
		{Key: keySignature, Doc: "The signature, `serving_default` by default"},
		{Key: keyInitOps, Doc: "A JSON file of operations that a graph runs once it is loaded"},
	},
}
