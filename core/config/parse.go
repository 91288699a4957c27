package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// FileName is the name of a model's configuration in its folder.
const FileName = "config.pbtxt"

// namedFolder holds alternative configurations, as NAME.pbtxt.
const namedFolder = "configs"

// MaxFileSize bounds the text of a configuration in bytes, so that a wrong file cannot exhaust memory.
const MaxFileSize = 4 << 20

// Load reads the configuration in a model's folder. If there is none, the error wraps fs.ErrNotExist.
func Load(dir string) (*modelconfig.ModelConfig, error) {
	return LoadFile(filepath.Join(dir, FileName))
}

// LoadFile reads a configuration from a file. If there is none, the error wraps fs.ErrNotExist.
func LoadFile(path string) (*modelconfig.ModelConfig, error) {
	text, err := ReadText(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// PathOf returns the path of a model's configuration: configs/NAME.pbtxt if a name is given and the file exists,
// else config.pbtxt.
func PathOf(dir, name string) string {
	if name != "" && filepath.IsLocal(name) && filepath.Base(name) == name {
		path := filepath.Join(dir, namedFolder, name+".pbtxt")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return filepath.Join(dir, FileName)
}

// ReadText reads the text of a configuration. A file over MaxFileSize is rejected without reading it. If there is
// no file, the error wraps fs.ErrNotExist.
func ReadText(path string) ([]byte, error) {
	text, err := readCapped(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, status.Errorf(status.NotFound, "failed to open text file for read %s: %w", path, fs.ErrNotExist)
	case status.CodeOf(err) == status.InvalidArg:
		return nil, err
	case err != nil:
		d := newDiagnostic(Unreadable, "", fmt.Sprintf("failed to open text file for read %s: %v", path, err))
		d.File, d.status = path, status.Internal
		return nil, d.Err()
	}
	return text, nil
}

// Parse reads a configuration from text. path is used in errors only. An error has the form "line:column: problem",
// and ends with a suggestion.
func Parse(path string, text []byte) (*modelconfig.ModelConfig, error) {
	if len(text) > MaxFileSize {
		return nil, tooLarge(path, int64(len(text)))
	}
	cfg := new(modelconfig.ModelConfig)
	if err := prototext.Unmarshal(normaliseSpaces(text), cfg); err != nil {
		d := parserFault(path, text, err)
		return nil, d.Err()
	}
	return cfg, nil
}

// normaliseSpaces replaces form feeds and vertical tabs outside strings by spaces: Triton's parser accepts them as
// white space, Go's does not.
func normaliseSpaces(text []byte) []byte {
	if !bytes.ContainsAny(text, "\v\f") {
		return text
	}
	text = bytes.Clone(text)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '#':
			i += skip(text[i:], func(c byte) bool { return c != '\n' }) - 1
		case '"', '\'':
			i += quoted(text[i:]) - 1
		case '\v', '\f':
			text[i] = ' '
		}
	}
	return text
}

func tooLarge(path string, size int64) error {
	d := newDiagnostic(TooLarge, "", fmt.Sprintf("failed to read text proto from %s: %d bytes, expected at most %d", path, size, MaxFileSize))
	d.File = path
	return d.Err()
}

// readCapped reads up to one byte more than allowed, so that Parse can reject the rest.
func readCapped(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		// Opening a pipe would wait for its writer.
		return nil, fmt.Errorf("expected a file, found %s", info.Mode())
	case info.Size() > MaxFileSize:
		return nil, tooLarge(path, info.Size())
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
