package square

import (
	"strconv"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
)

// The parameters of config.pbtxt, with the names of NVIDIA's backend.
const (
	keyInfer  = "CUSTOM_INFER_DELAY_NS"
	keyOutput = "CUSTOM_OUTPUT_DELAY_NS"
	keyCancel = "CUSTOM_CANCEL_DELAY_NS"
	keyFail   = "CUSTOM_FAIL_COUNT"
	keyEmpty  = "CUSTOM_EMPTY_COUNT"
)

// params are the parameters of a model.
type params struct {
	infer, output, cancel time.Duration
	fail, empty           int64
}

func parse(s *backends.Settings) (p params, err error) {
	for _, d := range []struct {
		key string
		to  *time.Duration
	}{{keyInfer, &p.infer}, {keyOutput, &p.output}, {keyCancel, &p.cancel}} {
		n, err := number(s, d.key)
		if err != nil {
			return p, err
		}
		*d.to = time.Duration(n)
	}
	if p.fail, err = number(s, keyFail); err != nil {
		return p, err
	}
	p.empty, err = number(s, keyEmpty)
	return p, err
}

// maxNumber bounds a parameter: as nanoseconds it is 13 days and cannot overflow.
const maxNumber = 1 << 50

// number returns a parameter, 0 if it is not set.
func number(s *backends.Settings, key string) (int64, error) {
	text := s.Param(key)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxNumber {
		return 0, status.Errorf(status.InvalidArg, "model '%s': parameter '%s' is '%s', expected an integer from 0 to %d", s.Model, key, text, int64(maxNumber))
	}
	return n, nil
}
