package backends

// Guide is the user documentation of a backend. Together with the rest of its Factory it becomes a section of
// docs/backends.md.
type Guide struct {
	// Doc describes the models of the backend, in sentences.
	Doc string
	// Limits describes unsupported features, in sentences. It is empty for a backend without model files.
	Limits string
	// Params documents the parameters of config.pbtxt that the backend reads.
	Params []Param
}

// Param documents one parameter of config.pbtxt, or several similar ones: Key then has their names, separated by commas.
type Param struct{ Key, Doc string }
