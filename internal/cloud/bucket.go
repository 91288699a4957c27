// Package cloud reads and writes objects in buckets: s3:// (Amazon and compatible servers), gs:// (Google) and as://
// (Azure). Open turns an address into a Bucket. The package does not cache: the repository stores downloads on disk.
//
// Files: bucket.go is the contract, addresses and keys, and Copy, whose ranged reads resume after a broken connection;
// s3.go, gcs.go and azure.go implement Bucket; renew.go opens one again when its credentials were renewed.
package cloud

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // it is what buckets tell of their objects
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/faults"
)

// Object is one entry of a listing.
type Object struct {
	Key  string // the name below the bucket's folder, with slashes
	Size int64  // in bytes
	Tag  string // Tag changes when the object does: its ETag or generation
	MD5  []byte // the sum of the content. Nil: unknown.
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
	maxListing    = 256 << 20 // bytes of a listing in memory
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
// may request credentials from the machine's metadata service. When the server refuses the credentials, they are read again.
func Open(ctx context.Context, address string, o *Options) (Bucket, error) {
	a, err := parse(address)
	if err != nil {
		return nil, err
	}
	b, err := newRenewing(ctx, func(ctx context.Context) (driver, error) { return open(ctx, a, o) })
	if err != nil {
		return nil, err // and no *renewing, which would be a Bucket that is not nil
	}
	return b, nil
}

// open opens the bucket with the credentials of now.
func open(ctx context.Context, a address, o *Options) (driver, error) {
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

var (
	// ErrChanged is wrapped by the error for an object that changed since it was listed.
	ErrChanged = errors.New("the object changed since it was listed")
	// ErrDenied is wrapped by the error for missing, wrong or expired credentials.
	ErrDenied = errors.New("access denied")
)

// failed maps an HTTP status to an error code and adds the address.
func failed(address, what string, code int, err error) error {
	kind, cause := status.Internal, error(nil)
	switch {
	case code == http.StatusNotFound:
		kind = status.NotFound
	case code == http.StatusPreconditionFailed:
		cause = ErrChanged
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusBadRequest && strings.Contains(err.Error(), "Expired"):
		cause = ErrDenied
	case code == 0 && errors.Is(err, context.Canceled):
		return status.ErrCancelled
	case code == 0, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		kind = status.Unavailable
	}
	if code != 0 {
		text := fmt.Sprintf("%s %s: status %d %s: %s", what, address, code, http.StatusText(code), firstLine(err.Error()))
		return &status.Error{Code: kind, Msg: text, Err: cause}
	}
	return status.Errorf(kind, "%s %s: %s", what, address, firstLine(err.Error()))
}

// firstLine returns the first line of a library's error text, which would fill the log.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// tooMany is the error for an unbounded listing.
func tooMany(address string) error {
	return status.Errorf(status.Internal, "listing %s: more than %d objects", address, maxObjects)
}

// tooLong is the error for a listing whose names are too long for their number.
func tooLong(address string) error {
	return status.Errorf(status.Internal, "listing %s: more than %d MiB of names of objects, expected less; name a folder of the bucket with fewer objects", address, maxListing>>20)
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
	if rest, ok := strings.CutPrefix(key, join(folder, "")); ok {
		return rest
	}
	return ""
}

// changed is the error for an object that changed since it was listed.
func changed(o Object) error {
	return &status.Error{Code: status.Internal, Msg: "object '" + o.Key + "' changed while it was read", Err: ErrChanged}
}

// address is the parsed address of a repository in a bucket.
type address struct {
	text, scheme string
	endpoint     string // the URL of an S3 server other than Amazon's. Optional.
	account      string // the Azure storage account
	bucket       string
	folder       string // in the bucket, without leading and trailing slashes
}

var (
	// s3Endpoint matches an address with the host and port of a server. For example, s3://localhost:9000/bucket/models.
	s3Endpoint = regexp.MustCompile(`^s3://(http://|https://|)([0-9a-zA-Z\-.]+):([0-9]+)/(.*)$`)
	azureForm  = regexp.MustCompile(`^as://([^/]+)/([^/?]+)(?:/([^?]*))?(\?.*)?$`)
)

// parse reads an address in one of Triton's forms.
func parse(text string) (address, error) {
	a := address{text: text}
	a.scheme, _, _ = strings.Cut(text, "://")
	rest := strings.TrimPrefix(text, a.scheme+"://")
	switch a.scheme {
	case "s3":
		if m := s3Endpoint.FindStringSubmatch(text); m != nil {
			a.endpoint, rest = cmp.Or(m[1], "https://")+m[2]+":"+m[3], m[4]
		}
		a.bucket, a.folder, _ = strings.Cut(clean(rest), "/")
	case "gs":
		a.bucket, a.folder, _ = strings.Cut(clean(rest), "/")
	case "as":
		m := azureForm.FindStringSubmatch(text)
		if m == nil {
			return a, status.Errorf(status.InvalidArg, "'%s' is no address of a container, expected as://ACCOUNT/CONTAINER/PATH", text)
		}
		a.account, a.bucket, a.folder = m[1], m[2], clean(m[3])
	default:
		return a, status.Errorf(status.Unsupported, "unsupported: '%s' has an unknown scheme, expected s3://, gs:// or as://", text)
	}
	if a.bucket == "" {
		return a, status.Errorf(status.InvalidArg, "'%s' names no bucket, expected %s://BUCKET/PATH", text, a.scheme)
	}
	return a, nil
}

// clean removes redundant slashes.
func clean(path string) string {
	return strings.Join(strings.FieldsFunc(path, func(r rune) bool { return r == '/' }), "/")
}

// credentialFile is the content of the file at TRITON_CLOUD_CREDENTIAL_PATH: credentials by address prefix. The
// longest matching prefix counts; "" matches all.
type credentialFile struct {
	GS map[string]string   `json:"gs"`
	S3 map[string]s3Keys   `json:"s3"`
	AS map[string]azureKey `json:"as"`
}

type s3Keys struct {
	Secret  string `json:"secret_key"`
	ID      string `json:"key_id"`
	Region  string `json:"region"`
	Token   string `json:"session_token"`
	Profile string `json:"profile"`
}

type azureKey struct {
	Account string `json:"account_str"`
	Key     string `json:"account_key"`
}

// maxCredentials bounds the size of the file in bytes.
const maxCredentials = 1 << 20

// readCredentials reads the credential file, if the environment names one. Its errors never contain content of the
// file.
func readCredentials(env func(string) string) (*credentialFile, error) {
	path := env("TRITON_CLOUD_CREDENTIAL_PATH")
	c := new(credentialFile)
	if path == "" {
		return c, nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, status.Errorf(status.InvalidArg, "TRITON_CLOUD_CREDENTIAL_PATH: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxCredentials:
		return nil, status.Errorf(status.InvalidArg, "TRITON_CLOUD_CREDENTIAL_PATH: '%s' is no file of credentials", path)
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, c)
	}
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "TRITON_CLOUD_CREDENTIAL_PATH: '%s' cannot be read: %w", path, err)
	}
	return c, nil
}

// longestPrefix returns the entry with the longest prefix of the address.
func longestPrefix[T any](entries map[string]T, address string) (best T, found bool) {
	at := -1
	for prefix, v := range entries {
		if len(prefix) > at && strings.HasPrefix(address, prefix) {
			best, at = v, len(prefix)
		}
	}
	return best, at >= 0
}

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
	if err := faults.At(faults.BucketRead); err != nil {
		return 0, err
	}
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
		if err := faults.At(faults.FileWrite); err != nil {
			return n, err
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
