package cloud

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/tutti-server/tutti/core/status"
)

// lister is a bucket that lists its objects page by page, sorted by key.
type lister interface {
	pages(ctx context.Context, prefix string, yield func([]Object) bool) error
}

// ranger is a bucket that reads n bytes of an object, or the rest for n < 0.
type ranger interface {
	readRange(ctx context.Context, o Object, offset, n int64) (io.ReadCloser, error)
}

// Walk lists every object whose key starts with prefix, sorted by key, a page at a time: unlike List it has no bound, and
// its memory is flat in the number of objects. The sequence ends behind an error.
func Walk(ctx context.Context, b Bucket, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		each := func(list []Object) bool {
			for i := range list {
				if !yield(list[i], nil) {
					return false
				}
			}
			return true
		}
		var err error
		if l, ok := b.(lister); ok {
			err = l.pages(ctx, prefix, each)
		} else {
			var list []Object
			if list, err = b.List(ctx, prefix); err == nil {
				each(list)
			}
		}
		if err != nil {
			yield(Object{}, err)
		}
	}
}

// objectSize is the size of an Object without what it refers to.
const objectSize = 80

// listAll returns all pages of a listing, up to maxObjects and maxListing.
func listAll(ctx context.Context, l lister, address, prefix string) ([]Object, error) {
	var all []Object
	size := 0
	err := l.pages(ctx, prefix, func(list []Object) bool {
		all = append(all, list...)
		for i := range list {
			size += objectSize + len(list[i].Key) + len(list[i].Tag) + len(list[i].MD5)
		}
		return len(all) <= maxObjects && size <= maxListing
	})
	switch {
	case err != nil:
	case len(all) > maxObjects:
		err = tooMany(address)
	case size > maxListing:
		err = tooLong(address)
	}
	if err != nil {
		return nil, err
	}
	return sorted(all), nil
}

// ReadRange reads n bytes of an object from an offset, or the rest for n < 0. It fails with ErrChanged if the object changed
// since it was listed.
func ReadRange(ctx context.Context, b Bucket, o Object, offset, n int64) (io.ReadCloser, error) {
	if r, ok := b.(ranger); ok && n != 0 {
		return r.readRange(ctx, o, offset, n)
	}
	r, err := b.Read(ctx, o, offset)
	if err != nil || n < 0 {
		return r, err
	}
	return limited{io.LimitReader(r, n), r}, nil
}

type limited struct {
	io.Reader
	io.Closer
}

// byteRange returns the header Range.
func byteRange(offset, n int64) string {
	if n < 0 {
		return fmt.Sprintf("bytes=%d-", offset)
	}
	return fmt.Sprintf("bytes=%d-%d", offset, offset+n-1)
}

// Folder returns the folder of an address in its bucket, without slashes around it. For example, "a/b" for "s3://bucket/a/b/".
func Folder(address string) (string, error) {
	a, err := parse(address)
	if err != nil {
		return "", err
	}
	return a.folder, nil
}

// Stat returns an object as it is now. It fails with NotFound if there is none.
func Stat(ctx context.Context, b Bucket, key string) (Object, error) {
	for o, err := range Walk(ctx, b, key) {
		if err != nil {
			return o, err
		}
		if o.Key == key {
			return o, nil
		}
		break // the object itself is the first with this prefix
	}
	return Object{}, notFound(key)
}

func notFound(key string) error {
	return status.Errorf(status.NotFound, "object '%s' is not there", key)
}
