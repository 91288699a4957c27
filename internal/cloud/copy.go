package cloud

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // it is what buckets tell of their objects
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// maxFailures is the number of consecutive reads without progress before Copy fails.
const maxFailures = 4

// Copy downloads an object to file. The file appears only when it is complete and verified. Copy resumes a partial
// file of an interrupted copy. wrote receives the number of bytes as they arrive; fetched is false for bytes that
// were in the partial file.
func Copy(ctx context.Context, b Bucket, o Object, file, partial string, wrote func(n int64, fetched bool)) error {
	f, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE, 0o600) // in the caller's cache
	if err != nil {
		return err
	}
	defer f.Close()
	have, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if have > o.Size {
		have = 0
	}
	wrote(have, false)
	if err := fill(ctx, b, &o, f, have, wrote); err != nil {
		return err
	}
	if err := verify(o, f); err != nil {
		_ = os.Remove(partial) // the next attempt starts from zero
		return err
	}
	if err := f.Chmod(0o444); err != nil {
		return err
	}
	return os.Rename(partial, file)
}

// fill reads from the end of the file until it is complete. A broken connection is no failure as long as bytes arrived.
func fill(ctx context.Context, b Bucket, o *Object, f *os.File, have int64, wrote func(int64, bool)) error {
	for failures := 0; have < o.Size; {
		n, err := readFrom(ctx, b, o, f, have, wrote)
		if have += n; have >= o.Size {
			break
		}
		if ctx.Err() != nil {
			return status.ErrCancelled
		}
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		if n >= pace {
			failures = 0
		}
		if failures++; failures >= maxFailures || status.CodeOf(err) == status.NotFound {
			return fmt.Errorf("reading object '%s' ended after %d of %d bytes: %w", o.Key, have, o.Size, err)
		}
		select {
		case <-time.After(100 * time.Millisecond << failures):
		case <-ctx.Done():
			return status.ErrCancelled
		}
	}
	return f.Truncate(o.Size)
}

// A connection counts as broken when fewer than pace bytes came for as long as idle:
// one that gives a byte now and then would otherwise hold a load for ever.
const (
	idle = 30 * time.Second
	pace = 16 << 10
)

// withoutSum is a body whose listed MD5 turned out to be another kind of ETag.
type withoutSum struct{ io.ReadCloser }

// readFrom performs one read from an offset.
func readFrom(ctx context.Context, b Bucket, o *Object, f *os.File, have int64, wrote func(int64, bool)) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := b.Read(ctx, *o, have)
	if err != nil {
		return 0, err
	}
	if _, ok := body.(withoutSum); ok {
		o.MD5 = nil
	}
	defer body.Close()
	watch := time.AfterFunc(idle, cancel)
	defer watch.Stop()
	src := io.LimitReader(body, o.Size-have)
	buf := make([]byte, 256<<10)
	for n, since := int64(0), int64(0); ; {
		got, err := src.Read(buf)
		if since += int64(got); since >= pace {
			watch.Reset(idle)
			since = 0
		}
		if _, werr := f.WriteAt(buf[:got], have+n); werr != nil {
			return n, werr
		}
		n += int64(got)
		wrote(int64(got), true)
		switch err {
		case nil:
		case io.EOF:
			return n, nil
		default:
			return n, err
		}
	}
}

// verify compares a file with the listed size and sum.
func verify(o Object, f *os.File) error {
	if len(o.MD5) == 0 {
		return nil
	}
	sum := md5.New() //nolint:gosec // as above
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, o.Size)); err != nil {
		return err
	}
	if got := sum.Sum(nil); !bytes.Equal(got, o.MD5) {
		return status.Errorf(status.Internal, "object '%s' has MD5 %x after reading, expected %x", o.Key, got, o.MD5)
	}
	return nil
}

// CopyBack uploads a file as an object.
func CopyBack(ctx context.Context, b Bucket, key, file string) error {
	f, err := os.Open(filepath.Clean(file))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return b.Write(ctx, key, f, info.Size())
}

// ignoreMissing returns nil for a missing object.
func ignoreMissing(err error) error {
	if status.CodeOf(err) == status.NotFound {
		return nil
	}
	return err
}

func sorted(list []Object) []Object {
	slices.SortFunc(list, func(a, b Object) int { return cmp.Compare(a.Key, b.Key) })
	return list
}
