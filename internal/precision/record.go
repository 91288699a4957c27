package precision

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/files"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// RecordFile is the name of the file with the stored figures, in the folder of the version.
const RecordFile = "fidelity.json"

// recordFormat is the format of the file that this program writes and reads.
const recordFormat = 1

// Record is the stored result of a measurement: how far the outputs of a version are from those of its reference.
type Record struct {
	Format    int       `json:"format"` // 1
	Backend   string    `json:"backend"`
	Precision Precision `json:"precision"` // of the version
	// Files are the hashes (SHA-256, hexadecimal) of the version's files by path in its folder: the record holds for these only.
	Files map[string]string `json:"files"`
	// Reference is what the version was compared with.
	Reference Reference `json:"reference"`
	Requests  int       `json:"requests"`
	Outputs   []Output  `json:"outputs"`
	// Processor is that of the measurement. Exact says that its sums of 8 bit products were exact.
	Processor string    `json:"processor,omitempty"`
	Exact     bool      `json:"exact_int8"`
	Measured  time.Time `json:"measured"`
}

// Reference is the version that a version was compared with.
type Reference struct {
	Version   int64             `json:"version"`
	Precision Precision         `json:"precision,omitempty"`
	Files     map[string]string `json:"files"`
}

// Hashes returns the hashes of the files in a version's folder, without the record and without hidden files.
func Hashes(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := hashBelow(dir, "", files, 0)
	return files, err
}

// deepest bounds the folders in folders, which links may close to a circle.
const deepest = 32

func hashBelow(dir, name string, files map[string]string, depth int) error {
	if depth == deepest {
		return status.Errorf(status.InvalidArg, "'%s' is more than %d folders deep, is a link one of its own parents?", dir, deepest)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path, below := filepath.Join(dir, e.Name()), filepath.Join(name, e.Name())
		if strings.HasPrefix(e.Name(), ".") || below == RecordFile {
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			err = hashBelow(path, below, files, depth+1)
		case info.Mode().IsRegular():
			files[below], err = hashFile(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// largestRecord bounds the size of a record's file.
const largestRecord = 16 << 20

// ReadRecord reads the record in the folder of a version. It is fs.ErrNotExist if there is none.
func ReadRecord(dir string) (*Record, error) {
	path := filepath.Join(dir, RecordFile)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > largestRecord:
		return nil, status.Errorf(status.InvalidArg, "'%s' is no stored fidelity: expected a file of at most %d bytes", path, largestRecord)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, status.Errorf(status.InvalidArg, "'%s' is no stored fidelity: %w", path, err)
	}
	if r.Format != recordFormat {
		return nil, status.Errorf(status.InvalidArg, "'%s' has format %d, expected %d", path, r.Format, recordFormat)
	}
	return r, nil
}

// Write writes the record into the folder of its version. A reader sees the whole old or the whole new file.
func (r *Record) Write(dir string) error {
	r.Format = recordFormat
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return files.Replace(filepath.Join(dir, RecordFile), append(text, '\n'), 0o644)
}

// Demanded returns the bound that a version must have to its reference, nil for none: the configuration demands none, or the version is
// declared fp32 and is a reference.
func Demanded(cfg *modelconfig.ModelConfig, version int64) (*Bound, error) {
	declared, err := Declared(cfg, version)
	if err != nil || declared == FP32 || declared == None {
		return nil, err
	}
	return BoundOf(cfg)
}

// Gate checks a version against the fidelity that its configuration demands: dir is its folder, modelDir that of the model. It returns nil
// if the configuration demands none. A version that is declared fp32 is a reference and needs no figures.
//
// The error says what was missed, or why there are no figures for these files, with the command that measures.
func Gate(cfg *modelconfig.ModelConfig, version int64, dir, modelDir string, machine Processor) error {
	bound, err := BoundOf(cfg)
	if bound == nil {
		return coded(FidelityKey, err)
	}
	declared, err := Declared(cfg, version)
	switch {
	case err != nil:
		return coded(Key, err)
	case declared == FP32:
		return nil
	case declared == None:
		return coded(FidelityKey, status.Errorf(status.InvalidArg,
			"model '%s': parameter '%s' needs parameter '%s', which says which versions are references: expected for example 'fp32, %d=int8'",
			cfg.GetName(), FidelityKey, Key, version))
	}
	if err := check(cfg, dir, bound, declared, machine); err != nil {
		err = status.Errorf(status.InvalidArg, "version %d of model '%s' does not have the fidelity '%s': %w", version, cfg.GetName(), bound, err)
		return config.WithFix(coded(FidelityKey, err), fmt.Sprintf("measure it: tutti quantize %s --measure %d", modelDir, version))
	}
	return nil
}

// coded attaches the rule of a parameter to err.
func coded(key string, err error) error {
	if err == nil {
		return nil
	}
	return config.Coded(config.Mismatch, "parameters."+key, err)
}

// check returns why the figures of a version do not permit it.
func check(cfg *modelconfig.ModelConfig, dir string, bound *Bound, declared Precision, machine Processor) error {
	r, err := ReadRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it was never measured: there is no '%s'", filepath.Join(dir, RecordFile))
	}
	if err != nil {
		return err
	}
	if r.Precision != declared || r.Backend != cfg.GetBackend() && r.Backend != cfg.GetPlatform() {
		return fmt.Errorf("it was measured in %s by %s, and the configuration declares %s by %s", r.Precision, r.Backend, declared, cfg.GetBackend())
	}
	files, err := Hashes(dir)
	if err != nil {
		return err
	}
	if name := changed(r.Files, files); name != "" {
		return fmt.Errorf("'%s' is not the file that was measured on %s", filepath.Join(dir, name), r.Measured.Format(time.DateOnly))
	}
	if declared == INT8 && r.Exact && !machine.ExactInt8() {
		return fmt.Errorf("it was measured on a processor with exact sums of 8 bit products (%s), and this one saturates them (%s)", r.Processor, machine)
	}
	if len(r.Outputs) == 0 || r.Requests == 0 {
		return errors.New("its stored figures have no outputs")
	}
	return bound.Check(r.Outputs)
}

// changed returns the first file that differs, "" if there is none.
func changed(want, got map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want[name] != got[name] {
			return name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] == "" {
			return name
		}
	}
	return ""
}
