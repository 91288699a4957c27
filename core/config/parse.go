package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/prototext"

	"tutti/core/status"
	"tutti/proto/modelconfig"
)

// FileName is the name of a model's configuration in its folder.
const FileName = "config.pbtxt"

// MaxFileSize bounds a configuration's text in bytes, so that a wrong file cannot exhaust memory.
const MaxFileSize = 4 << 20

// Load reads the configuration in a model's folder. When there is none, the error
// wraps fs.ErrNotExist.
func Load(dir string) (*modelconfig.ModelConfig, error) {
	return LoadFile(filepath.Join(dir, FileName))
}

// LoadFile reads the configuration in a file. When there is none, the error wraps
// fs.ErrNotExist.
func LoadFile(path string) (*modelconfig.ModelConfig, error) {
	text, err := readCapped(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, status.Errorf(status.NotFound, "failed to open text file for read %s: %w", path, fs.ErrNotExist)
	case err != nil:
		return nil, status.Errorf(status.Internal, "failed to open text file for read %s: %w", path, err)
	}
	return Parse(path, text)
}

// Parse reads a configuration from text; path only serves the error, which has the
// form of the protobuf text parser's: line:column: what is wrong.
func Parse(path string, text []byte) (*modelconfig.ModelConfig, error) {
	if len(text) > MaxFileSize {
		return nil, status.Errorf(status.InvalidArg, "failed to read text proto from %s: %d bytes, expected at most %d",
			path, len(text), MaxFileSize)
	}
	cfg := new(modelconfig.ModelConfig)
	if err := prototext.Unmarshal(text, cfg); err != nil {
		return nil, status.Errorf(status.InvalidArg, "failed to read text proto from %s: %s", path, parserText(text, err))
	}
	return cfg, nil
}

// readCapped reads one byte more than allowed, which Parse then refuses.
func readCapped(path string) ([]byte, error) {
	if err := regular(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return text, nil
}

// regular refuses what is no file: opening a pipe would wait for its writer for ever.
func regular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("expected a file, found %s", info.Mode())
	}
	return err
}
