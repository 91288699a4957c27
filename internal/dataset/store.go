package dataset

import (
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
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
)

// file is a file of a dataset as it was listed.
type file struct {
	key  string // relative to the store, with slashes
	size int64
	tag  string // changes when the file does
}

// store is a folder with files: local or in a bucket.
type store interface {
	// walk lists the files whose key starts with prefix, which is empty or a whole element, in the order of their names.
	walk(ctx context.Context, prefix string) iter.Seq2[file, error]
	// open reads n bytes of a file from an offset, all for n < 0. It fails with ErrChanged if the file is another one than f.
	open(ctx context.Context, f file, offset, n int64) (io.ReadCloser, error)
	// name returns the place of a file for messages.
	name(key string) string
}

// hidden reports whether a file or folder is none of the dataset: ".x" is temporary, "_SUCCESS" a mark.
func hidden(key string) bool {
	return slices.ContainsFunc(strings.Split(key, "/"), func(s string) bool { return strings.HasPrefix(s, ".") || strings.HasPrefix(s, "_") })
}

// localStore is a local folder.
type localStore struct{ root string }

func (l localStore) name(key string) string { return filepath.Join(l.root, filepath.FromSlash(key)) }

// localTag is the tag of a local file: its size and the time of its last change.
func localTag(info fs.FileInfo) string {
	return strconv.FormatInt(info.Size(), 10) + "-" + strconv.FormatInt(info.ModTime().UnixNano(), 36)
}

func (l localStore) walk(ctx context.Context, prefix string) iter.Seq2[file, error] {
	return func(yield func(file, error) bool) {
		stopped := errors.New("stopped")
		err := filepath.WalkDir(l.name(prefix), func(p string, d fs.DirEntry, err error) error {
			if err = errors.Join(err, ctx.Err()); err != nil {
				return localError("listing", p, err)
			}
			rel, err := filepath.Rel(l.root, p)
			if err != nil {
				return err
			}
			if d.IsDir() {
				return nil
			}
			info, err := os.Stat(p) // follows links
			if err != nil {
				return localError("listing", p, err)
			}
			if info.Mode().IsRegular() && !yield(file{filepath.ToSlash(rel), info.Size(), localTag(info)}, nil) {
				return stopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(file{}, err)
		}
	}
}

// localFile is an open file that is compared with its listing when it ends.
type localFile struct {
	*os.File
	left int64 // bytes to read; negative for all
	of   file
	path string
}

func (l localStore) open(_ context.Context, f file, offset, n int64) (io.ReadCloser, error) {
	p := l.name(f.key)
	r, err := os.Open(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, changedError(p, f.tag, "gone")
	}
	if err != nil {
		return nil, localError("reading", p, err)
	}
	lf := &localFile{r, n, f, p}
	if err = lf.check(); err == nil && offset > 0 {
		_, err = r.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return lf, nil
}

// check compares the file with its listing.
func (l *localFile) check() error {
	info, err := l.Stat()
	if err != nil {
		return localError("reading", l.path, err)
	}
	if now := localTag(info); now != l.of.tag {
		return changedError(l.path, l.of.tag, now)
	}
	return nil
}

func (l *localFile) Read(b []byte) (int, error) {
	if l.left >= 0 && int64(len(b)) > l.left {
		b = b[:l.left]
	}
	if len(b) == 0 {
		return 0, cmp.Or(l.check(), io.EOF)
	}
	n, err := l.File.Read(b)
	if l.left >= 0 {
		l.left -= int64(n)
	}
	switch {
	case err == io.EOF:
		return n, cmp.Or(l.check(), err)
	case err != nil:
		return n, localError("reading", l.path, err)
	}
	return n, nil
}

// bucketStore is a folder in a bucket.
type bucketStore struct {
	bucket cloud.Bucket
	root   string
}

func (b bucketStore) name(key string) string { return strings.TrimSuffix(b.root, "/") + "/" + key }

func (b bucketStore) walk(ctx context.Context, prefix string) iter.Seq2[file, error] {
	return func(yield func(file, error) bool) {
		for o, err := range cloud.Walk(ctx, b.bucket, prefix) {
			if err != nil {
				yield(file{}, bucketError(err))
				return
			}
			if prefix != "" && o.Key != prefix && !strings.HasPrefix(o.Key, prefix+"/") || strings.HasSuffix(o.Key, "/") {
				continue
			}
			if !yield(file{o.Key, o.Size, o.Tag}, nil) {
				return
			}
		}
	}
}

func (b bucketStore) open(ctx context.Context, f file, offset, n int64) (io.ReadCloser, error) {
	if n == 0 || n < 0 && offset >= f.size { // a server refuses an empty range
		return io.NopCloser(strings.NewReader("")), nil
	}
	r, err := cloud.ReadRange(ctx, b.bucket, cloud.Object{Key: f.key, Size: f.size, Tag: f.tag}, offset, n)
	switch {
	case isChanged(err):
		return nil, changedError(b.name(f.key), f.tag, "another one")
	case status.CodeOf(err) == status.NotFound && err != nil:
		return nil, changedError(b.name(f.key), f.tag, "gone")
	case err != nil:
		return nil, bucketError(err)
	}
	want := n
	if n < 0 {
		want = f.size - offset
	}
	return &bucketBody{ReadCloser: r, left: want, name: b.name(f.key)}, nil
}

// bucketBody makes a broken connection an Unavailable error.
type bucketBody struct {
	io.ReadCloser
	left int64
	name string
}

func (b *bucketBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	if len(p) == 0 {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	switch {
	case err == nil, err == io.EOF && b.left == 0:
		return n, nil
	case errors.Is(err, context.Canceled):
		return n, status.ErrCancelled
	}
	return n, status.Reasonf(status.StorageUnavailable, "reading '%s': the connection ended with %d bytes missing: %w", b.name, b.left, err)
}

// wild reports whether an element of a path is a pattern.
func wild(s string) bool { return strings.ContainsAny(s, "*?[") }

// place is what a URI names: a file, or the files of a folder that match a pattern.
type place struct {
	store   store
	prefix  string // of the keys
	pattern string // for the elements behind the prefix; empty for all
}

// resolve finds the folder that a URI is in. It does not connect.
func resolve(ctx context.Context, uri string, o *Options) (*place, error) {
	if uri == "" {
		return nil, status.Errorf(status.InvalidArg, "the dataset has no uri; expected a path, or an address as s3://BUCKET/PATH, gs://BUCKET/PATH or as://ACCOUNT/CONTAINER/PATH")
	}
	if !cloud.Is(uri) {
		return resolveLocal(uri)
	}
	folder, err := cloud.Folder(uri)
	if err != nil {
		return nil, err
	}
	elements := strings.FieldsFunc(folder, func(r rune) bool { return r == '/' })
	at := slices.IndexFunc(elements, wild)
	base, pattern := len(elements), ""
	if at >= 0 {
		base, pattern = at, strings.Join(elements[at:], "/")
	}
	prefix := ""
	if at < 0 && base > 0 { // a file, or a folder
		base--
		prefix = elements[base]
	}
	root := strings.TrimRight(uri, "/")
	for range len(elements) - base {
		root = strings.TrimRight(root[:strings.LastIndexByte(root, '/')], "/")
	}
	b, err := o.open(ctx, root)
	if err != nil {
		return nil, bucketError(err)
	}
	return &place{bucketStore{b, root}, prefix, pattern}, nil
}

func resolveLocal(uri string) (*place, error) {
	scheme, rest, ok := strings.Cut(uri, "://")
	if ok && scheme == "file" {
		uri = rest
	} else if ok {
		return nil, status.Errorf(status.Unsupported, "unsupported: '%s' has the scheme '%s', expected a path, or an address with s3://, gs:// or as://", uri, scheme)
	}
	uri = filepath.Clean(uri)
	if _, err := os.Stat(uri); err == nil {
		return &place{localStore{filepath.Dir(uri)}, filepath.Base(uri), ""}, nil
	}
	elements := strings.Split(filepath.ToSlash(uri), "/")
	at := slices.IndexFunc(elements, wild)
	if at < 0 {
		return &place{localStore{filepath.Dir(uri)}, filepath.Base(uri), ""}, nil
	}
	root := strings.Join(elements[:at], "/")
	switch {
	case at == 0:
		root = "."
	case root == "":
		root = "/"
	}
	pattern := strings.Join(elements[at:], "/")
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, status.Errorf(status.InvalidArg, "'%s' is no pattern: %w", uri, err)
	}
	return &place{localStore{root}, "", pattern}, nil
}

// files lists the files of the place. relative is the name below the folder that the URI names, or the base name of a file.
func (p *place) files(ctx context.Context) iter.Seq2[file, error] {
	return func(yield func(file, error) bool) {
		for f, err := range p.store.walk(ctx, p.prefix) {
			if err != nil {
				yield(f, err)
				return
			}
			if p.has(f.key) && !yield(f, nil) {
				return
			}
		}
	}
}

// has reports whether a listed key is a file of the place.
func (p *place) has(key string) bool {
	if p.pattern == "" {
		rest := strings.TrimPrefix(strings.TrimPrefix(key, p.prefix), "/")
		return !hidden(rest)
	}
	ok, _ := path.Match(p.pattern, key) // checked by resolve
	if !ok {                            // a pattern may name folders
		if n := strings.Count(p.pattern, "/"); strings.Count(key, "/") > n {
			parts := strings.Split(key, "/")
			ok, _ = path.Match(p.pattern, strings.Join(parts[:n+1], "/"))
			return ok && !hidden(strings.Join(parts[n+1:], "/"))
		}
	}
	return ok
}
