package async

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/dataset"
	"github.com/tutti-server/tutti/internal/diskfull"
)

// records is the storage. A record is an object: a line of JSON, then the body of the request or of the response. It is
// safe for concurrent use.
type records struct {
	uri  string
	data *dataset.Options

	mu  sync.Mutex
	out *dataset.Output // nil until the first use
	id  string          // see name
}

// The kinds of records, which end their names.
const (
	kindRequest  = ".request"
	kindResponse = ".response"
	nameFile     = "storage.id"
	maxHead      = 1 << 20 // bytes of the first line
)

// storedRequest is the first line of a request.
type storedRequest struct {
	order
	Header http.Header `json:"header"`
	URL    string      `json:"callback_url,omitempty"`
}

// storedResponse is the first line of a response.
type storedResponse struct {
	order
	State    job.RequestState `json:"state"`
	Code     int              `json:"status"`
	Header   http.Header      `json:"header"`
	Size     int64            `json:"size"`
	Started  time.Time        `json:"started"`
	Ended    time.Time        `json:"ended"`
	Attempts int              `json:"attempts"`
	URL      string           `json:"callback_url,omitempty"`
}

// idTime is the begin of an ID: when the request was made. The rest is random, so that no one guesses the ID of another's
// request.
const idTime = "20060102-150405"

var validID = regexp.MustCompile(`^(\d{8}-\d{6})-[0-9a-f]{32}$`)

func newID(now time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return now.UTC().Format(idTime) + "-" + hex.EncodeToString(b[:])
}

// madeAt returns when the request of an ID was made, the zero time for a name that is no ID.
func madeAt(id string) time.Time {
	m := validID.FindStringSubmatch(id)
	if m == nil {
		return time.Time{}
	}
	t, err := time.Parse(idTime, m[1])
	if err != nil {
		return time.Time{}
	}
	return t
}

// open returns the output of the storage. A local folder is made for this user only: requests are not for others.
func (r *records) open(ctx context.Context) (*dataset.Output, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out != nil {
		return r.out, nil
	}
	if !cloud.Is(r.uri) {
		if err := os.MkdirAll(strings.TrimPrefix(r.uri, "file://"), 0o700); err != nil {
			return nil, r.away(err)
		}
	}
	out, err := dataset.OpenOutput(ctx, job.Place{URI: r.uri}, r.data)
	if err == nil {
		r.out = out
	}
	return out, err
}

// away is the error of a storage that cannot be used now.
func (r *records) away(err error) error {
	err = diskfull.Explain(err, r.uri, "")
	return &status.Error{
		Code: status.Unavailable, Reason: status.StorageUnavailable, Err: err, RetryAfter: cmp.Or(status.RetryAfter(err), time.Second),
		Msg: "the storage of asynchronous requests '" + r.uri + "' cannot be used: " + err.Error() + "; --async-dir names another one",
	}
}

// name identifies the storage among those of other servers of one Temporal server: task queues have it. A folder has a file
// with its name, since folders of different machines may have the same path.
func (r *records) name(ctx context.Context) (string, error) {
	out, err := r.open(ctx)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id != "" {
		return r.id, nil
	}
	if cloud.Is(r.uri) {
		sum := sha256.Sum256([]byte(strings.TrimRight(r.uri, "/")))
		r.id = hex.EncodeToString(sum[:6])
		return r.id, nil
	}
	f, err := os.OpenFile(out.Name(nameFile)+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", r.away(err)
	}
	defer f.Close()
	if err = lock(f); err != nil {
		return "", r.away(err)
	}
	text, err := out.Get(ctx, nameFile)
	if err != nil && status.CodeOf(err) == status.NotFound {
		var b [6]byte
		_, _ = rand.Read(b[:]) // never fails
		text = []byte(hex.EncodeToString(b[:]))
		err = out.Put(ctx, nameFile, text)
	}
	if err == nil {
		r.id = strings.TrimSpace(string(text))
	}
	return r.id, err
}

// room returns an error if a request of n bytes would leave too little of the storage's disk free. Results are not refused: their requests are
// stored already.
func (r *records) room(ctx context.Context, n int) error {
	if _, err := r.open(ctx); err != nil || cloud.Is(r.uri) {
		return err
	}
	if err := diskfull.Reserve(strings.TrimPrefix(r.uri, "file://"), int64(n), ""); err != nil {
		return r.away(err)
	}
	return nil
}

// put writes a record.
func (r *records) put(ctx context.Context, key string, head any, body []byte) error {
	out, err := r.open(ctx)
	if err != nil {
		return err
	}
	line, err := json.Marshal(head)
	if err != nil {
		return err
	}
	data := make([]byte, 0, len(line)+1+len(body))
	data = append(append(append(data, line...), '\n'), body...)
	if err = out.Put(ctx, key, data); err != nil && status.CodeOf(err) == status.Unavailable {
		return r.away(err)
	}
	return err
}

// get reads the first line of a record. The caller reads the body, and closes it.
func (r *records) get(ctx context.Context, key string, head any) (io.ReadCloser, error) {
	out, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	f, err := out.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	b := bufio.NewReaderSize(f, 64<<10)
	line, err := readLine(b)
	if err == nil {
		err = json.Unmarshal(line, head)
	}
	if err != nil {
		return nil, errors.Join(status.Errorf(status.Internal, "'%s' is no record of an asynchronous request: %w", out.Name(key), err), f.Close())
	}
	return body{b, f}, nil
}

// body is the rest of a record.
type body struct {
	*bufio.Reader
	io.Closer
}

func readLine(b *bufio.Reader) ([]byte, error) {
	var line bytes.Buffer
	for {
		part, err := b.ReadSlice('\n')
		line.Write(part)
		switch {
		case line.Len() > maxHead:
			return nil, errors.New("its first line is too long")
		case err == nil:
			return line.Bytes(), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// remove removes a record.
func (r *records) remove(ctx context.Context, key string) error {
	out, err := r.open(ctx)
	if err != nil {
		return err
	}
	return out.Delete(ctx, key)
}

// sweep removes the records that are not needed any more: responses after keep, and requests that were not executed in time.
func (r *records) sweep(ctx context.Context, now time.Time, keep time.Duration) error {
	out, err := r.open(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for o, err := range out.List(ctx, "") {
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		id, kind, _ := strings.Cut(o.Key, ".")
		made := madeAt(id)
		if made.IsZero() || now.Before(made.Add(keep)) || kind != kindRequest[1:] && kind != kindResponse[1:] {
			continue
		}
		if now.Before(made.Add(2*keep+time.Minute)) && r.needed(ctx, o.Key, now, keep) {
			continue
		}
		errs = append(errs, out.Delete(ctx, o.Key))
	}
	return errors.Join(append(errs, out.Sweep(ctx, now.Add(-time.Hour)))...)
}

// needed reports whether a record is that of a request which may still be executed, or a result that has not expired.
func (r *records) needed(ctx context.Context, key string, now time.Time, keep time.Duration) bool {
	if strings.HasSuffix(key, kindRequest) {
		return true
	}
	var head storedResponse
	rest, err := r.get(ctx, key, &head)
	if err != nil {
		return true
	}
	return errors.Join(rest.Close()) != nil || now.Before(head.Ended.Add(keep))
}
