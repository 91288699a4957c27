//go:build !amd64

package tensorop

// vectors is false: only amd64 has vector code. The functions below are never called.
const vectors = false

func addVector(_, _, _ *float32, _ int)                    {}
func subtractVector(_, _, _ *float32, _ int)               {}
func multiplyVector(_, _, _ *float32, _ int)               {}
func divideVector(_, _, _ *float32, _ int)                 {}
func equalVector(_ *byte, _, _ *float32, _ int)            {}
func notEqualVector(_ *byte, _, _ *float32, _ int)         {}
func lessVector(_ *byte, _, _ *float32, _ int)             {}
func lessEqualVector(_ *byte, _, _ *float32, _ int)        {}
func bytesVector(*float32, *uint8, int)                    {}
func truncateVector(*int32, *float32, int) bool            { return false }
func clipVector(_, _ *float32, _ int, _, _ float32)        {}
func greatestVector(_ *float32, _ int, _ *[8]float32) bool { return false }
func firstVector(_ *float32, n int, _ float32) int         { return n }
func expVector(_, _ *float32, _ int) int                   { return 0 }
