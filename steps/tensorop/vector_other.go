//go:build !amd64

package tensorop

// vectors is false: only amd64 has vector code. The functions below are never called.
const vectors = false

var (
	addVector, subtractVector, multiplyVector, divideVector  func(dst, a, b *float32, n int)
	equalVector, notEqualVector, lessVector, lessEqualVector func(dst *byte, a, b *float32, n int)
)

func bytesVector(*float32, *uint8, int)                    {}
func truncateVector(*int32, *float32, int) bool            { return false }
func clipVector(_, _ *float32, _ int, _, _ float32)        {}
func greatestVector(_ *float32, _ int, _ *[8]float32) bool { return false }
func firstVector(_ *float32, n int, _ float32) int         { return n }
func expVector(_, _ *float32, _ int) int                   { return 0 }
