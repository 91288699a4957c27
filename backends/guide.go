package backends

// Guide is what docs/backends.md says of a backend beside the rest of its Factory.
type Guide struct {
	// Doc says in sentences what its models are.
	Doc string
	// Limits says in sentences what is refused or cannot be; empty for a backend without files.
	Limits string
	// Params are the parameters of config.pbtxt that it reads.
	Params []Param
}

// Param is a parameter of config.pbtxt, or several that are alike, separated by commas.
type Param struct{ Key, Doc string }
