package replay

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/capture"
)

// extension is the end of the names of captures in a folder.
const extension = ".npz"

// Capture is the file of a captured request.
type Capture struct {
	Path string
	// About is what was captured, without contents; zero if Err is the reason that the file cannot be read.
	About inspect.TensorList
	Err   error
}

// Find returns the captures that the paths name: files, and folders with files *.npz. They are in the order in which the requests
// arrived, so that sequences are whole. Files that are no captures come first.
func Find(paths []string) ([]*Capture, error) {
	var list []*Capture
	seen := map[string]bool{}
	for _, path := range paths {
		files, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if c := (&Capture{Path: file}); !seen[file] {
				seen[file] = true
				c.Err = c.open(func(f *capture.File) error {
					c.About = f.TensorList
					return nil
				})
				list = append(list, c)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *Capture) int { return cmp.Compare(a.About.StartUs, b.About.StartUs) })
	return list, nil
}

// filesOf returns a file, or the captures in a folder.
func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{filepath.Clean(path)}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if strings.EqualFold(filepath.Ext(e.Name()), extension) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(path, "*"+extension), Err: os.ErrNotExist}
	}
	return files, nil
}

// open calls use with the open file.
func (c *Capture) open(use func(*capture.File) error) error {
	info, err := os.Stat(c.Path) // opening a pipe would wait
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("'%s' is no file (%s)", c.Path, info.Mode())
	}
	file, err := os.Open(c.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	f, err := capture.ReadFile(file, info.Size())
	if err == nil {
		err = use(f)
	}
	return err
}

// Request returns the captured request.
func (c *Capture) Request() (req *client.Request, err error) {
	if c.Err != nil {
		return nil, c.Err
	}
	err = c.open(func(f *capture.File) error {
		req, err = requestOf(f)
		return err
	})
	return req, err
}

// sequenceKey identifies a captured sequence.
type sequenceKey struct {
	model, name string
	id          uint64
}

// sequence is a captured sequence as it is replayed.
type sequence struct {
	id     uint64 // id or name is a new one: the captured one may be in use
	name   string
	broken string // the file of a request of the sequence that was not replayed
}

// requestOf returns the request of a capture.
func requestOf(f *capture.File) (*client.Request, error) {
	req := &client.Request{Model: f.Model, ID: f.Request, Parameters: map[string]any{}}
	for i := range f.List {
		x := &f.List[i]
		if x.Step != tracing.RequestStep {
			continue
		}
		data, whole, err := f.Content(i)
		if err != nil {
			return nil, fmt.Errorf("input '%s' cannot be sent: %w", x.Tensor, err)
		}
		if !whole {
			return nil, fmt.Errorf("input '%s' cannot be sent: its content does not fit %s %v", x.Tensor, x.Type, x.Shape)
		}
		req.Inputs = append(req.Inputs, client.Tensor{Name: x.Tensor, DType: tensor.ParseDType(x.Type), Shape: x.Shape, Data: data})
	}
	s := f.Sent
	if s == nil {
		return req, nil
	}
	req.Outputs = s.Outputs
	if len(s.Redacted) > 0 {
		return nil, fmt.Errorf("parameter '%s' of the request is not in the capture: it was redacted, or had no room", s.Redacted[0])
	}
	for _, p := range s.Params {
		v, err := value(p)
		if err != nil {
			return nil, fmt.Errorf("parameter '%s' of the request is '%s', expected %s", p.Key, p.Value, p.Type)
		}
		req.Parameters[p.Key] = v
	}
	return req, nil
}

// value returns the value of a parameter.
func value(p inspect.ParamView) (any, error) {
	switch p.Type {
	case "bool":
		return strconv.ParseBool(p.Value)
	case "int64":
		return strconv.ParseInt(p.Value, 10, 64)
	case "uint64":
		return strconv.ParseUint(p.Value, 10, 64)
	case "double":
		return strconv.ParseFloat(p.Value, 64)
	case "string":
		return p.Value, nil
	}
	return nil, errors.New("unknown type")
}

// sequenceOf returns the sequence of a captured request, nil for none.
func (r *replayer) sequenceOf(about *inspect.TensorList) *sequence {
	if about.Sent == nil || about.Sent.Sequence == nil {
		return nil
	}
	q := about.Sent.Sequence
	key := sequenceKey{about.Model, q.Name, q.ID}
	s := r.sequences[key]
	if s == nil || q.Start {
		s = &sequence{}
		if q.Name != "" {
			s.name = fmt.Sprintf("replay-%016x", rand.Uint64()) //nolint:gosec // it is no secret
		} else {
			s.id = rand.Uint64()>>1 | 1 //nolint:gosec // it is no secret
		}
		if !q.Start {
			s.broken = "its first request"
		}
		r.sequences[key] = s
	}
	return s
}
