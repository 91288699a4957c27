package xgboost

import (
	"math"

	"github.com/tutti-server/tutti/core/status"
)

// source reads the values of a document, in order. Each method consumes one value. JSON and UBJSON implement it.
type source interface {
	// object calls field for each key of an object; field must consume the value.
	object(field func(key string) error) error
	// array calls each for the elements of an array; each must consume one. It is for arrays of objects.
	array(each func() error) error
	// numbers calls add for the elements of an array of numbers and booleans, which count as 0 and 1. size is the number of elements,
	// where the document has it in front.
	numbers(size func(n int), add func(x float64)) error
	// text returns a string, or the text of a number.
	text() (string, error)
	skip() error
	// end checks that nothing follows.
	end() error
	// at returns the position in the file, for errors.
	at() int
}

// maxNesting is the most containers inside each other. Models of XGBoost have six.
const maxNesting = 64

// floats reads an array of FP32 numbers.
func floats(s source) (out []float32, err error) {
	err = s.numbers(func(n int) { out = make([]float32, 0, n) }, func(x float64) { out = append(out, float32(x)) })
	return out, err
}

// ints reads an array of 32 bit integers.
func ints(s source) (out []int32, err error) {
	whole := true
	err = s.numbers(func(n int) { out = make([]int32, 0, n) }, func(x float64) {
		whole = whole && x >= math.MinInt32 && x <= math.MaxInt32 && x == math.Trunc(x)
		if whole {
			out = append(out, int32(x))
		}
	})
	if err == nil && !whole {
		return nil, invalid(s, "an array has an element that is not a 32 bit integer")
	}
	return out, err
}

func invalid(s source, format string, args ...any) error {
	return status.Prefixf(status.Errorf(status.InvalidArg, format, args...), "byte %d: ", s.at())
}
