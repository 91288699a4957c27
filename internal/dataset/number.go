package dataset

import (
	"encoding/hex"
	"math"
	"strconv"
)

// appendFloat appends the shortest decimal that is read back as v, a float of the given bits: 0.1 for the FP32 0.1. What
// is not finite is NaN, Infinity or -Infinity, as in the JSON of inference requests.
func appendFloat(b []byte, v float64, bits int) []byte {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return append(b, "NaN"...)
	case math.IsInf(v, 1):
		return append(b, "Infinity"...)
	case math.IsInf(v, -1):
		return append(b, "-Infinity"...)
	case a == 0 || 1e-6 <= a && a < 1e21:
		return strconv.AppendFloat(b, v, 'f', -1, bits)
	default:
		return strconv.AppendFloat(b, v, 'e', -1, bits)
	}
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }
