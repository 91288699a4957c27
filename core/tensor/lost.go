package tensor

import (
	"errors"
	"reflect"
)

// LostError is in the chain of every error of a device that cannot be used any more. Err is the first error of the device.
type LostError struct{ Err error }

// Error returns the text of Err.
func (e LostError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e LostError) Unwrap() error { return e.Err }

// SplitLost splits the errors that errors.Join has joined into those of lost devices and the others; nil for none. Closing what was at a
// lost device fails, and is no failure of the caller.
func SplitLost(err error) (lost, others error) {
	if err == nil {
		return nil, nil
	}
	if list, ok := err.(interface{ Unwrap() []error }); ok && reflect.TypeOf(err) == joined {
		for _, e := range list.Unwrap() {
			l, o := SplitLost(e)
			lost, others = errors.Join(lost, l), errors.Join(others, o)
		}
		return lost, others
	}
	if _, ok := errors.AsType[LostError](err); ok {
		return err, nil
	}
	return nil, err
}

var joined = reflect.TypeOf(errors.Join(errors.ErrUnsupported))
