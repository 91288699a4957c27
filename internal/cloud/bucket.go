package cloud

import (
	"context"
	"crypto/md5" //nolint:gosec // it is what buckets tell of their objects
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// Object is one entry of a listing.
type Object struct {
	// Key is the name below the bucket's folder, with slashes.
	Key string
	// Size is in bytes.
	Size int64
	// Tag changes when the object does: its ETag or generation.
	Tag string
	// MD5 is the sum of the content. Nil: unknown.
	MD5 []byte
}

// Bucket is a folder in a bucket. It is safe for concurrent use. Errors have the code NotFound, Unavailable for
// failures that may pass, or Internal.
type Bucket interface {
	// List returns every object whose key starts with prefix, sorted by key.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Read reads an object from an offset in bytes. It fails if the object changed since it was listed.
	Read(ctx context.Context, o Object, offset int64) (io.ReadCloser, error)
	// Write creates or replaces an object of size bytes.
	Write(ctx context.Context, key string, body io.ReadSeeker, size int64) error
	// Delete removes an object. A missing object is no error.
	Delete(ctx context.Context, key string) error
}

// The bounds of what is waited for and listed.
const (
	headerTimeout = 30 * time.Second // until the response header
	dialTimeout   = 10 * time.Second
	maxObjects    = 1 << 20
	// idleConnections is the number of idle connections per server.
	idleConnections = 16
)

// Options configure Open.
type Options struct {
	// Env looks up environment variables; for example, os.Getenv.
	Env func(string) string

	_ struct{}
}

// Is reports whether a repository's address is that of a bucket.
func Is(address string) bool {
	scheme, _, ok := strings.Cut(address, "://")
	return ok && (scheme == "s3" || scheme == "gs" || scheme == "as")
}

// Open returns the bucket at an address. For example, "s3://bucket/models". It does not connect to the bucket, but
// may request credentials from the machine's metadata service.
func Open(ctx context.Context, address string, o *Options) (Bucket, error) {
	a, err := parse(address)
	if err != nil {
		return nil, err
	}
	keys, err := readCredentials(o.Env)
	if err != nil {
		return nil, err
	}
	switch a.scheme {
	case "s3":
		return openS3(ctx, a, keys, o)
	case "gs":
		return openGCS(ctx, a, keys, o)
	default:
		return openAzure(a, keys, o)
	}
}

// newClient returns the HTTP client for a bucket.
func newClient() *http.Client {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	setTimeouts(t)
	return &http.Client{Transport: t}
}

// setTimeouts bounds the time until a response starts. The body may take any time as long as bytes arrive.
func setTimeouts(t *http.Transport) {
	t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = dialTimeout, headerTimeout
	t.MaxIdleConnsPerHost, t.IdleConnTimeout = idleConnections, time.Minute
	t.DisableCompression = true
}

// failed maps an HTTP status to an error code and adds the address.
func failed(address, what string, code int, err error) error {
	kind := status.Internal
	switch {
	case code == http.StatusNotFound:
		kind = status.NotFound
	case code == 0 && errors.Is(err, context.Canceled):
		return status.ErrCancelled
	case code == 0, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		kind = status.Unavailable
	}
	if code != 0 {
		return status.Errorf(kind, "%s %s: status %d %s: %s", what, address, code, http.StatusText(code), firstLine(err.Error()))
	}
	return status.Errorf(kind, "%s %s: %s", what, address, firstLine(err.Error()))
}

// firstLine returns the first line of a library's error text, which would fill the log.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// etagMD5 returns the MD5 in an S3 ETag. It returns nil for another kind of ETag: that of a multipart or encrypted
// object.
func etagMD5(tag string) []byte {
	sum, err := hex.DecodeString(tag)
	if err != nil || len(sum) != md5.Size {
		return nil
	}
	return sum
}

// tooMany is the error for an unbounded listing.
func tooMany(address string) error {
	return status.Errorf(status.Internal, "listing %s: more than %d objects", address, maxObjects)
}

// join returns the full key of an object in a folder of the bucket.
func join(folder, key string) string {
	if folder == "" {
		return key
	}
	return folder + "/" + key
}

// relativeKey returns a key relative to the folder, or "" if it is not in it.
func relativeKey(folder, key string) string {
	if folder == "" {
		return key
	}
	rest, ok := strings.CutPrefix(key, folder+"/")
	if !ok {
		return ""
	}
	return rest
}

// changed is the error for an object that changed since it was listed.
func changed(o Object) error {
	return fmt.Errorf("object '%s' changed while it was read", o.Key)
}
