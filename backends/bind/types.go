package bind

import (
	"fmt"

	"github.com/tutti-server/tutti/core/tensor"
)

// Type is an element type of a runtime. DType is Invalid for a type that is not supported.
type Type struct {
	Name  string
	DType tensor.DType
}

// Types are the element types of a runtime, indexed by the runtime's own numbers.
type Types []Type

// DType returns the data type with a number of the runtime, or Invalid.
func (t Types) DType(n int) tensor.DType {
	if n >= 0 && n < len(t) {
		return t[n].DType
	}
	return tensor.Invalid
}

// Name returns the runtime's name of an element type, for errors.
func (t Types) Name(n int) string {
	if n >= 0 && n < len(t) {
		return t[n].Name
	}
	return fmt.Sprintf("number %d", n)
}
