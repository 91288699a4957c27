//go:build !amd64

package embed

// fast reports whether the processor can execute product.
const fast = false

// product is never called.
func product(*float32, *float32, int) float32 { return 0 }
