package async

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/pipeline/engine"
)

// Callbacks tells receivers that requests have ended, as the specification Standard Webhooks says. It is safe for concurrent
// use.
type Callbacks struct {
	hosts  *hosts
	file   string
	client *http.Client
}

// The bounds of a callback.
const (
	callbackTimeout = 10 * time.Second // of an attempt
	callbackRetry   = 5 * time.Second  // before the second attempt; it doubles
	maxURL          = 2048
	secretPrefix    = "whsec_"
	leastSecret     = 24 // bytes
	mostSecret      = 64
)

// NewCallbacks returns the callbacks to an allow list of hosts, signed with the secrets of a file: lines of base64, which may
// begin with "whsec_". Each secret gives a signature, so that receivers can change from one to the next. The file is read for each
// callback. For example:
//
//	NewCallbacks([]string{"hooks.example.com", "*.example.org:8443"}, "/etc/tutti/callback-secret")
func NewCallbacks(allowed []string, secretFile string) (*Callbacks, error) {
	list, err := parseHosts(allowed)
	if err != nil {
		return nil, err
	}
	if secretFile == "" {
		return nil, status.Errorf(status.InvalidArg, "--callback-host needs --callback-secret-file, the file with the secret that signs callbacks")
	}
	c := &Callbacks{hosts: list, file: secretFile}
	if _, err := c.secrets(); err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: callbackTimeout, Control: func(_, address string, _ syscall.RawConn) error { return list.dialable(address) }}
	c.client = &http.Client{
		Timeout: callbackTimeout,
		// A proxy would hide the address of the receiver from the dialer.
		Transport:     &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, TLSHandshakeTimeout: callbackTimeout, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// check returns an error for a URL that may not be called.
func (c *Callbacks) check(address string) error {
	if c == nil {
		return status.Errorf(status.InvalidArg, "this server sends no callbacks: start it with --callback-host, which lists the hosts that they may go to, "+
			"and with --callback-secret-file")
	}
	return c.hosts.check(address)
}

// secrets reads the file.
func (c *Callbacks) secrets() ([][]byte, error) {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "--callback-secret-file: %w", err)
	}
	var list [][]byte
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(line, secretPrefix))
		if err != nil || len(key) < leastSecret || len(key) > mostSecret {
			return nil, status.Errorf(status.InvalidArg, "--callback-secret-file: line %d of '%s' is no secret; expected %d to %d bytes in base64, for example the output of `openssl rand -base64 32`",
				len(list)+1, c.file, leastSecret, mostSecret)
		}
		list = append(list, key)
	}
	if len(list) == 0 {
		return nil, status.Errorf(status.InvalidArg, "--callback-secret-file: '%s' has no secret", c.file)
	}
	return list, nil
}

// event is the body of a callback.
type event struct {
	Type      string    `json:"type"` // for example, infer.succeeded
	Timestamp time.Time `json:"timestamp"`
	Data      eventData `json:"data"`
}

type eventData struct {
	ID        string           `json:"id"`
	Model     string           `json:"model"`
	Version   string           `json:"version,omitempty"`
	State     job.RequestState `json:"state"`
	Code      int              `json:"status"`
	Reason    string           `json:"error_reason,omitempty"`
	StatusURL string           `json:"status_url"`
	ResultURL string           `json:"result_url"`
}

// send sends one attempt of a callback. A 2xx response is a success.
func (c *Callbacks) send(ctx context.Context, done *storedResponse, now time.Time) error {
	if err := c.check(done.URL); err != nil { // the list may be another one than that of the server
		return err
	}
	keys, err := c.secrets()
	if err != nil {
		return err
	}
	path := job.RequestPath(done.ID)
	text, err := json.Marshal(&event{"infer." + string(done.State), done.Ended, eventData{
		done.ID, done.Model, done.Version, done.State, done.Code, reasonOf(done), path, path + "/result",
	}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, done.URL, bytes.NewReader(text))
	if err != nil {
		return err
	}
	stamp := strconv.FormatInt(now.Unix(), 10)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "tutti", "Webhook-Id": done.ID, "Webhook-Timestamp": stamp, "Webhook-Signature": sign(keys, done.ID, stamp, text),
	} {
		req.Header.Set(name, value)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok { // its text has the URL, which Temporal does not get
			err = outer.Err
		}
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // the code says all
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode == http.StatusGone: // it wants no more of them
		return fatal(errors.New("the receiver responded 410 Gone"))
	case resp.StatusCode/100 == 3:
		return fmt.Errorf("the receiver responded %s; redirects are not followed", resp.Status)
	}
	return fmt.Errorf("the receiver responded %s", resp.Status)
}

// sign returns the signatures of a callback: HMAC-SHA256 over id.timestamp.body, one for each secret.
func sign(keys [][]byte, id, stamp string, body []byte) string {
	list := make([]string, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + stamp + "."))
		mac.Write(body)
		list[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(list, " ")
}

// callback is the activity of a callback. Temporal repeats it until the receiver has accepted it, or until the result expires.
func (w *Worker) callback(ctx context.Context, o *order) error {
	var done storedResponse
	rest, err := w.records.get(ctx, o.ID+kindResponse, &done)
	if err == nil {
		err = rest.Close()
	} else if status.CodeOf(err) == status.NotFound {
		return fatal(errors.New("the result was removed"))
	}
	if err == nil {
		err = w.s.Callbacks.send(ctx, &done, time.Now())
	}
	if err == nil || temporal.IsApplicationError(err) {
		return err
	}
	return temporal.NewApplicationError(engine.Text(err.Error()), errWaits)
}
