package bind

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Keys of --backend-config that the framework backends share.
const (
	KeyMaxBatch = "default-max-batch-size"
	KeyLibrary  = "library-path"
)

// Library returns the path of a runtime's library, which find looks up (runtimes.Find), and DefaultMaxBatch, by the options of the
// backend.
func Library(backend string, o *backends.Options, find func(runtime, given string) (string, error)) (path string, maxBatch int, err error) {
	if maxBatch, err = DefaultMaxBatch(backend, o); err != nil {
		return "", 0, err
	}
	path, err = find(backend, o.Config[KeyLibrary])
	return path, maxBatch, err
}

// DefaultMaxBatch returns the max_batch_size that auto-completion gives to models that can batch, by the options of the backend. It is 4
// by default, as in Triton.
func DefaultMaxBatch(backend string, o *backends.Options) (int, error) {
	v, ok := o.Config[KeyMaxBatch]
	if !ok {
		return 4, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0, status.Errorf(status.InvalidArg, "unexpected value '%s' of %s setting '%s': expected an integer of at least 0", v, backend, KeyMaxBatch)
	}
	return n, nil
}

// Words are the accepted values of boolean parameters, in lower case. Each runtime has its own, which are those of Triton's
// backend for it. For example, ENABLE_BATCH_PADDING of OpenVINO is YES or NO.
type Words struct {
	True, False []string
	// Expected lists the values in the error for any other.
	Expected string
}

// Parse returns the value of a boolean parameter.
func (w *Words) Parse(key, value string) (bool, error) {
	word := strings.ToLower(value)
	on := slices.Contains(w.True, word)
	if !on && !slices.Contains(w.False, word) {
		return false, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected %s", value, key, w.Expected)
	}
	return on, nil
}

// Targets are what parameters of config.pbtxt set, by key: a *bool, a *string, an *int that is a number of threads, where 0 keeps
// its value, or a func(key, value string) error. The target of the key "" gets all others, which are ignored without it.
type Targets map[string]any

// Keys returns the keys in order.
func (t Targets) Keys() []string { return slices.Sorted(maps.Keys(t)) }

// Set sets the parameters of a configuration in the order of their keys. It stops at the first error.
func (w *Words) Set(cfg *modelconfig.ModelConfig, to Targets) error {
	params := cfg.GetParameters()
	for _, key := range slices.Sorted(maps.Keys(params)) {
		target, ok := to[key]
		if !ok {
			target = to[""]
		}
		value, err := params[key].GetStringValue(), error(nil)
		switch target := target.(type) {
		case *bool:
			*target, err = w.Parse(key, value)
		case *string:
			*target = value
		case *int:
			n, failed := ParseThreads(key, value)
			*target, err = cmp.Or(n, *target), failed
		case func(key, value string) error:
			err = target(key, value)
		case nil:
		default:
			panic(fmt.Sprintf("bind: parameter %s has a target of type %T", key, target))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// MaxThreads is the most threads of a pool that a configuration may request.
const MaxThreads = 1024

// ParseThreads returns the value of a parameter that is a number of threads.
func ParseThreads(key, value string) (int, error) {
	return ParseInt(key, value, 0, MaxThreads, "a number of threads")
}

// ParseInt returns the value of an integer parameter. what names the quantity in the error.
func ParseInt(key, value string, least, most int, what string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		return 0, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected %s from %d to %d", value, key, what, least, most)
	}
	return n, nil
}

// UnreadableFile adds to the error of a runtime that cannot read a model file which format was expected and what was found. The
// runtimes' own errors for a wrong or truncated file rarely say so.
func UnreadableFile(err error, expected, path string) error {
	if err == nil || status.CodeOf(err) == status.Cancelled {
		return err
	}
	what := found(path)
	err = config.Coded(config.ModelFile, "default_model_filename", status.Errorf(status.CodeOf(err), "%w (expected %s, found %s)", err, expected, what))
	err = config.At(err, path, 0)
	if strings.HasPrefix(what, lfsPointer) {
		return config.WithFix(err, "run 'git lfs pull' to fetch the file itself")
	}
	return config.WithFix(err, "copy or export the file again")
}

// lfsPointer describes the file that Git LFS leaves in place of one that was not fetched.
const lfsPointer = "a pointer of Git LFS"

// found describes the file at a path: its size and, for a text file, its first bytes.
func found(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "no file"
	case info.IsDir():
		return "a folder"
	case info.Size() == 0:
		return "an empty file"
	}
	f, err := os.Open(path)
	if err != nil {
		return "a file that cannot be read"
	}
	defer func() { _ = f.Close() }()
	var head [40]byte
	n, _ := f.Read(head[:])
	if strings.HasPrefix(string(head[:n]), "version https://git-lfs.github.com/spec/") {
		return lfsPointer + fmt.Sprintf(" of %d bytes", info.Size())
	}
	n = min(n, 16)
	if bytes.ContainsFunc(head[:n], func(r rune) bool { return (r < ' ' || r > '~') && r != '\n' && r != '\r' && r != '\t' }) {
		return fmt.Sprintf("%d bytes", info.Size())
	}
	return fmt.Sprintf("%d bytes that begin with %q", info.Size(), head[:n])
}

// ModelFile returns the path of the model file. Where it is a folder, that folder must contain a file of the default name, unless
// isModel accepts the folder itself; isModel may be nil.
func ModelFile(s *backends.Settings, name string, isModel func(folder string) bool) (string, error) {
	path := s.File(name)
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		if isModel != nil && isModel(path) {
			return path, nil
		}
		path = filepath.Join(path, name)
		info, err = os.Stat(path)
	}
	if err != nil {
		return "", config.MissingFile(status.Errorf(status.NotFound, "unable to find '%s' for model '%s'", path, s.Model), path)
	}
	if !info.Mode().IsRegular() { // for example a pipe, which would block the loader
		return "", status.Errorf(status.InvalidArg, "unable to load model '%s': expected a file at '%s', found %s", s.Model, path, info.Mode())
	}
	return path, nil
}

// Types are the names of a runtime's element types, indexed by the runtime's own numbers.
type Types []string

// dtypes are the data types by the names that runtimes have for them. A type of another name is not supported.
var dtypes = map[string]tensor.DType{
	"bool": tensor.Bool, "boolean": tensor.Bool, "string": tensor.Bytes,
	"u8": tensor.Uint8, "u16": tensor.Uint16, "u32": tensor.Uint32, "u64": tensor.Uint64,
	"uint8": tensor.Uint8, "uint16": tensor.Uint16, "uint32": tensor.Uint32, "uint64": tensor.Uint64,
	"i8": tensor.Int8, "i16": tensor.Int16, "i32": tensor.Int32, "i64": tensor.Int64,
	"int8": tensor.Int8, "int16": tensor.Int16, "int32": tensor.Int32, "int64": tensor.Int64,
	"bf16": tensor.BF16, "bfloat16": tensor.BF16, "f16": tensor.FP16, "float16": tensor.FP16, "half": tensor.FP16,
	"f32": tensor.FP32, "float": tensor.FP32, "f64": tensor.FP64, "double": tensor.FP64,
}

// Name returns the runtime's name of an element type, for errors.
func (t Types) Name(n int) string {
	if n >= 0 && n < len(t) {
		return t[n]
	}
	return fmt.Sprintf("number %d", n)
}

// DType returns the data type with a number of the runtime, or Invalid.
func (t Types) DType(n int) tensor.DType { return dtypes[t.Name(n)] }

// NewPort returns a port of a file. Its element type is a number of types, and its dimensions are at an address in C memory; a
// negative rank is unknown, and a negative dimension variable. It refuses types without a counterpart and ranks above MaxRank.
func NewPort[R any](types Types, name string, output bool, number, rank int, dims unsafe.Pointer, own R) (Port[R], error) {
	p := Port[R]{Name: name, DType: types.DType(number), AnyRank: rank < 0, Native: own}
	if p.DType == tensor.Invalid {
		return p, status.Errorf(status.Unsupported, "unsupported datatype %s of %s '%s'", types.Name(number), Side(output), name)
	}
	if rank > MaxRank {
		return p, status.Errorf(status.Unsupported, "unsupported shape of %s '%s': expected at most %d dimensions, found %d", Side(output), name, MaxRank, rank)
	}
	for _, d := range unsafe.Slice((*int64)(dims), max(0, rank)) {
		p.Shape = append(p.Shape, max(d, -1))
	}
	return p, nil
}

// CStrings returns an array of zero-terminated strings that C code may read until pin is unpinned.
func CStrings(pin *runtime.Pinner, list []string) unsafe.Pointer {
	all := make([]*byte, len(list)+1)
	for i, s := range list {
		text := append([]byte(s), 0)
		all[i] = &text[0]
		pin.Pin(all[i])
	}
	pin.Pin(&all[0])
	return unsafe.Pointer(&all[0])
}

// Places returns the distinct places of the configured instances: the host, and the GPUs of groups of KIND_GPU.
func Places(cfg *modelconfig.ModelConfig) (all []tensor.Place) {
	add := func(at tensor.Place) {
		if !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	for _, g := range cfg.GetInstanceGroup() {
		if g.GetKind() != modelconfig.ModelInstanceGroup_KIND_GPU {
			add(tensor.Place{})
			continue
		}
		for _, id := range g.GetGpus() {
			add(tensor.Place{Kind: tensor.Device, ID: int16(id)})
		}
	}
	if len(all) == 0 {
		add(tensor.Place{})
	}
	return all
}
