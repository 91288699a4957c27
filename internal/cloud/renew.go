package cloud

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// driver is a Bucket with all that the package uses of one.
type driver interface {
	Bucket
	lister
	ranger
}

// renewEvery is how often a bucket is opened again at the most.
const renewEvery = time.Second

// renewing is a bucket that is opened again when its server refuses the credentials, and then calls once more: credentials that have
// expired may have been renewed in their file. Whoever uses the bucket needs no restart. It is safe for concurrent use.
type renewing struct {
	open func(ctx context.Context) (driver, error)

	mu      sync.Mutex
	bucket  driver    // guarded by mu
	renewed time.Time // when the bucket was last opened again; guarded by mu
}

// newRenewing returns the bucket that open opens.
func newRenewing(ctx context.Context, open func(ctx context.Context) (driver, error)) (*renewing, error) {
	b, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return &renewing{open: open, bucket: b}, nil
}

// do calls the bucket, and calls it again with new credentials when the first call was refused and again allows it.
func (r *renewing) do(ctx context.Context, again func() bool, call func(b driver) error) error {
	b := r.current()
	err := call(b)
	if !errors.Is(err, ErrDenied) || !again() {
		return err
	}
	if b = r.renew(ctx, b); b == nil {
		return err
	}
	return call(b)
}

func (r *renewing) current() driver {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bucket
}

// renew returns a bucket that was opened after the refused one, or nil.
func (r *renewing) renew(ctx context.Context, refused driver) driver {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bucket != refused {
		return r.bucket
	}
	if time.Since(r.renewed) < renewEvery {
		return nil
	}
	r.renewed = time.Now()
	b, err := r.open(ctx)
	if err != nil {
		return nil // for example a file that is being written: the refusal is the error, and the next one opens it again
	}
	r.bucket = b
	return b
}

// always allows a second call.
func always() bool { return true }

// List implements Bucket.
func (r *renewing) List(ctx context.Context, prefix string) (list []Object, err error) {
	err = r.do(ctx, always, func(b driver) (err error) {
		list, err = b.List(ctx, prefix)
		return err
	})
	return list, err
}

// pages implements lister. A listing whose objects were used already is not begun again.
func (r *renewing) pages(ctx context.Context, prefix string, yield func([]Object) bool) error {
	begun := false
	return r.do(ctx, func() bool { return !begun }, func(b driver) error {
		return b.pages(ctx, prefix, func(list []Object) bool {
			begun = true
			return yield(list)
		})
	})
}

// Read implements Bucket.
func (r *renewing) Read(ctx context.Context, o Object, offset int64) (io.ReadCloser, error) {
	return r.readRange(ctx, o, offset, -1)
}

// readRange implements ranger.
func (r *renewing) readRange(ctx context.Context, o Object, offset, n int64) (body io.ReadCloser, err error) {
	err = r.do(ctx, always, func(b driver) (err error) {
		body, err = b.readRange(ctx, o, offset, n)
		return err
	})
	return body, err
}

// Write implements Bucket.
func (r *renewing) Write(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	start, err := body.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	return r.do(ctx, always, func(b driver) error {
		if _, err := body.Seek(start, io.SeekStart); err != nil {
			return err
		}
		return b.Write(ctx, key, body, size)
	})
}

// Delete implements Bucket.
func (r *renewing) Delete(ctx context.Context, key string) error {
	return r.do(ctx, always, func(b driver) error { return b.Delete(ctx, key) })
}
