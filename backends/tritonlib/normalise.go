package tritonlib

// #include <stdlib.h>
import "C"

import (
	"errors"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// completed reads a configuration that a library has set, and completes what it leaves out, as the server does for files.
func completed(text string) (*modelconfig.ModelConfig, error) {
	cfg, err := config.ParseJSON(text)
	if err == nil {
		err = config.Normalise(cfg, cfg.GetName())
	}
	if err == nil {
		err = errors.Join(config.Check(cfg)...)
	}
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "unexpected configuration from TRITONBACKEND_ModelSetConfig: %w", err)
	}
	return cfg, nil
}

// tuttiCompletedConfig is called by TRITONBACKEND_ModelSetConfig in a child: libraries read the configuration again and expect every field. It sets
// whole to the completed JSON, or returns the text of an error. Both must be freed.
//
//export tuttiCompletedConfig
func tuttiCompletedConfig(text *C.char, whole **C.char) *C.char {
	cfg, err := completed(C.GoString(text))
	if err == nil {
		var out []byte
		if out, err = config.JSON(cfg); err == nil {
			*whole = C.CString(string(out))
			return nil
		}
	}
	return C.CString(status.Text(err))
}
