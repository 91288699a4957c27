//go:build !amd64 || !cgo

package kernels

// Fast is false: the loops of package resize are faster than Along, Add and Round.
func Fast() bool { return false }

// The loops in Go; native.go has the contract of each function.
var (
	Inverse  = inverse
	Reduced  = reduced
	Color    = color
	Widen    = widen
	Lengthen = lengthen
	Stretch  = stretch
	Add      = add
	Round    = rounded
	Lerp     = lerp
	Blend    = blend
	Above    = above
)

// Along is described in native.go.
func Along(a, b, rowA, rowB []byte, t *Taps) {
	along(a, rowA, t)
	along(b, rowB, t)
}

func (l *Lines) row(*[3][]byte, []byte) int { return 0 }

func fused() bool { return false }
