// Package config reads config.pbtxt: it parses the text, fills in defaults, checks what one configuration can be
// checked for on its own, and brings it together with the signature of the model it describes.
//
// The way of a configuration:
//
//	Load or Parse    text to message; errors carry line and column
//	Normalise        defaults: name, backend, version policy, instances
//	Check, Validate  every rule that needs no other model; fields not honoured are refused
//	Complete, Agree  inputs and outputs of the configuration and the model's own
//	JSON             what the configuration endpoint shows
//
// Rules between models (an ensemble and its steps) belong to pipeline/plan.
package config
