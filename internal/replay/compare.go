package replay

import "github.com/tutti-server/tutti/internal/tensordiff"

// The kinds of differences, besides those of two tensors.
const (
	KindMissing   = "missing"   // the tensor is not there
	KindResponses = "responses" // another number of responses
	KindStatus    = "status"    // the request failed then and succeeds now, or fails in another way
)

// Difference is a difference between a captured tensor and the replayed one.
type Difference struct {
	// Step and Tensor name the tensor by its producer. They are empty for KindStatus.
	Step   string `json:"step,omitempty"`
	Tensor string `json:"tensor,omitempty"`
	// Response is the number of the response of a decoupled step, from 1; 0 for other steps.
	Response int `json:"response,omitempty"`
	tensordiff.Difference
}

// difference returns one of another kind than those of two tensors.
func difference(kind, captured, replayed string) *tensordiff.Difference {
	return &tensordiff.Difference{Kind: kind, Want: captured, Got: replayed}
}
