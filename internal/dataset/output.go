package dataset

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
)

// maxObject bounds what Get reads, in bytes.
const maxObject = 1 << 30

// temporary is the begin of the names of files that are being written. Such files are no part of a dataset, and may be
// removed when no process writes.
const temporary = ".tutti-"

// Object is an entry of an output.
type Object struct {
	Key  string // below the output, with slashes
	Size int64  // in bytes
}

// Output is a folder that results are written to: local or in a bucket. Every object appears with its whole content, or
// not at all, and is durable when the call that wrote it returns. Writers of the same name with the same content do
// not disturb each other. Errors have the code NotFound, InvalidArg for a place that is none, and Unavailable for what may
// pass, for example a full disk or expired credentials. It is safe for concurrent use.
type Output struct {
	uri    string
	format string
	root   string       // of a local folder
	bucket cloud.Bucket // nil for a local folder
}

// outputs are the formats of parts.
var outputs = []string{"csv", "jsonl", "npz", "parquet"}

// OpenOutput returns the output at a place; the format is jsonl if it is empty. It makes and writes nothing. A local
// file, an unknown format and a scheme that is none are refused.
func OpenOutput(ctx context.Context, at job.Place, o *Options) (*Output, error) {
	out := &Output{uri: at.URI, format: cmp.Or(at.Format, "jsonl")}
	if !slices.Contains(outputs, out.format) {
		return nil, status.Errorf(status.Unsupported, "unsupported: format '%s' of the output '%s', expected %s", at.Format, at.URI, strings.Join(outputs, ", "))
	}
	switch scheme, rest, ok := strings.Cut(at.URI, "://"); {
	case at.URI == "":
		return nil, status.Errorf(status.InvalidArg, "the output has no uri; expected a folder, or an address as s3://BUCKET/PATH, gs://BUCKET/PATH or as://ACCOUNT/CONTAINER/PATH")
	case wild(at.URI):
		return nil, status.Errorf(status.InvalidArg, "the output '%s' is a pattern; expected a folder", at.URI)
	case cloud.Is(at.URI):
		var err error
		out.bucket, err = o.open(ctx, at.URI)
		return out, bucketError(err)
	case ok && scheme != "file":
		return nil, status.Errorf(status.Unsupported, "unsupported: '%s' has the scheme '%s', expected a path, or an address with s3://, gs:// or as://", at.URI, scheme)
	case ok:
		out.root = filepath.Clean(rest)
	default:
		out.root = filepath.Clean(at.URI)
	}
	if info, err := os.Stat(out.root); err == nil && !info.IsDir() {
		return nil, status.Errorf(status.InvalidArg, "the output '%s' is a file; expected a folder", at.URI)
	}
	return out, nil
}

// Format returns the format of the parts.
func (o *Output) Format() string { return o.format }

// Name returns the place of an object, for messages and for Status.Manifest.
func (o *Output) Name(key string) string { return o.store().name(key) }

func (o *Output) store() store {
	if o.bucket != nil {
		return bucketStore{o.bucket, o.uri}
	}
	return localStore{o.root}
}

// Put writes a small object. For example, a plan or a manifest.
func (o *Output) Put(ctx context.Context, key string, data []byte) error {
	if o.bucket != nil {
		return bucketError(o.bucket.Write(ctx, key, bytes.NewReader(data), int64(len(data))))
	}
	f, err := o.create(key)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(localError("writing", o.Name(key), err), discard(f))
	}
	return o.commit(f, key)
}

// create makes a temporary file beside a local object.
func (o *Output) create(key string) (*os.File, error) {
	if key == "" || !fs.ValidPath(key) {
		return nil, status.Errorf(status.InvalidArg, "'%s' is no name of an object", key)
	}
	dir := filepath.Dir(o.Name(key))
	if err := makeFolder(dir); err != nil {
		return nil, localError("making the folder", dir, err)
	}
	f, err := os.CreateTemp(dir, temporary+"*")
	return f, localError("writing", o.Name(key), err)
}

// makeFolder makes a folder, and makes the names of new ones durable.
func makeFolder(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // results are for others, too
		return err
	}
	return syncFolder(parent)
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// discard removes a temporary file.
func discard(f *os.File) error {
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// commit gives a temporary file its name, once its content is durable.
func (o *Output) commit(f *os.File, key string) error {
	name := o.Name(key)
	err := errors.Join(f.Chmod(0o644), f.Sync()) //nolint:gosec // as above
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(localError("writing", name, err), discard(f))
	}
	return localError("writing", name, errors.Join(f.Close(), syncFolder(filepath.Dir(name))))
}

// Get reads a small object. It fails with NotFound if there is none.
func (o *Output) Get(ctx context.Context, key string) ([]byte, error) {
	r, size, err := o.open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > maxObject {
		return nil, status.Errorf(status.InvalidArg, "object '%s' has %d bytes, more than %d", o.Name(key), size, maxObject)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, status.Prefixf(err, "reading '%s': ", o.Name(key))
	}
	return data, nil
}

// Open reads an object. It fails with NotFound if there is none.
func (o *Output) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	r, _, err := o.open(ctx, key)
	return r, err
}

func (o *Output) open(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	if key == "" || !fs.ValidPath(key) {
		return nil, 0, status.Errorf(status.InvalidArg, "'%s' is no name of an object", key)
	}
	f, err := o.stat(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	r, err := o.store().open(ctx, f, 0, -1)
	return r, f.size, err
}

// stat returns an object as it is now.
func (o *Output) stat(ctx context.Context, key string) (file, error) {
	if o.bucket != nil {
		obj, err := cloud.Stat(ctx, o.bucket, key)
		return file{obj.Key, obj.Size, obj.Tag}, bucketError(err)
	}
	info, err := os.Stat(o.Name(key))
	if err != nil {
		return file{}, localError("reading", o.Name(key), err)
	}
	return file{key, info.Size(), localTag(info)}, nil
}

// List lists the objects in a folder of the output, with those below it, in the order of their names; "" is the output itself. A
// folder that is not there has none. Temporary files are left out.
func (o *Output) List(ctx context.Context, folder string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for f, err := range o.store().walk(ctx, folder) {
			if status.CodeOf(err) == status.NotFound && err != nil && o.bucket == nil {
				return
			}
			if err != nil {
				yield(Object{}, err)
				return
			}
			if !strings.HasPrefix(path.Base(f.key), temporary) && !yield(Object{f.key, f.size}, nil) {
				return
			}
		}
	}
}

// Sweep removes temporary files that processes left that were killed, and that are older than a time. A bucket has none.
func (o *Output) Sweep(ctx context.Context, before time.Time) error {
	if o.bucket != nil {
		return nil
	}
	err := filepath.WalkDir(o.root, func(p string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), temporary) {
			return err
		}
		info, err := d.Info()
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(p)
		}
		if errors.Is(err, fs.ErrNotExist) { // its writer ended meanwhile
			return nil
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return localError("removing temporary files below", o.root, err)
}

// Delete removes an object. A missing one is no error.
func (o *Output) Delete(ctx context.Context, key string) error {
	if o.bucket != nil {
		return bucketError(o.bucket.Delete(ctx, key))
	}
	if err := os.Remove(o.Name(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return localError("removing", o.Name(key), err)
	}
	return nil
}
