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

// Object is one object as a listing tells of it.
type Object struct {
	// Key is the object's name below the bucket's folder, with slashes.
	Key string
	// Size is in bytes.
	Size int64
	// Tag changes with the object: its ETag or generation.
	Tag string
	// MD5 is the content's, nil when the bucket does not tell.
	MD5 []byte
}

// Bucket is a folder in a bucket. It is safe for concurrent use. Errors tell the code
// of what failed: NotFound, Unavailable for what may pass, else Internal.
type Bucket interface {
	// List returns every object whose key begins with prefix, sorted by key.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Read reads an object from an offset in bytes. It fails when the object is not
	// the listed one any more.
	Read(ctx context.Context, o Object, offset int64) (io.ReadCloser, error)
	// Write makes or replaces an object of size bytes.
	Write(ctx context.Context, key string, body io.ReadSeeker, size int64) error
	// Delete removes an object; one that is not there is no error.
	Delete(ctx context.Context, key string) error
}

// The bounds of what is waited for and listed.
const (
	headerTimeout = 30 * time.Second // until an answer begins
	dialTimeout   = 10 * time.Second
	maxObjects    = 1 << 20
	// idleConnections is how many are kept per server.
	idleConnections = 16
)

// Options are what buckets are opened with.
type Options struct {
	// Env looks environment variables up, as os.Getenv does.
	Env func(string) string

	_ struct{}
}

// Is reports whether a repository's address is that of a bucket.
func Is(address string) bool {
	scheme, _, ok := strings.Cut(address, "://")
	return ok && (scheme == "s3" || scheme == "gs" || scheme == "as")
}

// Open returns the bucket at an address. It does not connect yet, but may ask where
// the machine runs for credentials.
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

// newClient returns the HTTP client of a bucket.
func newClient() *http.Client {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	limit(t)
	return &http.Client{Transport: t}
}

// limit has an answer begin in time; it may then take as long as its bytes go on
// coming.
func limit(t *http.Transport) {
	t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = dialTimeout, headerTimeout
	t.MaxIdleConnsPerHost, t.IdleConnTimeout = idleConnections, time.Minute
	t.DisableCompression = true
}

// failed gives an error the code of an HTTP status and names the address.
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

// firstLine keeps a library's report of several lines from filling the log.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// etagMD5 returns the MD5 that an ETag of S3 is, nil when it is something else: those
// of objects that were sent in parts or encrypted are.
func etagMD5(tag string) []byte {
	sum, err := hex.DecodeString(tag)
	if err != nil || len(sum) != md5.Size {
		return nil
	}
	return sum
}

// tooMany refuses a listing without end.
func tooMany(address string) error {
	return status.Errorf(status.Internal, "listing %s: more than %d objects", address, maxObjects)
}

// join puts a key below a folder of a bucket.
func join(folder, key string) string {
	if folder == "" {
		return key
	}
	return folder + "/" + key
}

// strip returns a key below the folder, or "" when it is not below.
func strip(folder, key string) string {
	if folder == "" {
		return key
	}
	rest, ok := strings.CutPrefix(key, folder+"/")
	if !ok {
		return ""
	}
	return rest
}

// gone says that an object is not the listed one any more.
func gone(o Object) error {
	return fmt.Errorf("object '%s' changed while it was read", o.Key)
}
