package identity

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/tutti-server/tutti/internal/diskfull"
)

// Event is a line of the audit log.
type Event struct {
	Time    string `json:"time"`             // RFC 3339 in UTC
	Who     string `json:"who"`              // the name of the identity, or anonymous
	By      string `json:"by,omitempty"`     // how it is known
	From    string `json:"from"`             // the client's address
	Via     string `json:"via"`              // http, grpc, dashboard or metrics
	Action  string `json:"action"`           // for example model.load
	Object  string `json:"object,omitempty"` // the model, region, job or capture
	Outcome string `json:"outcome"`          // ok, failed or refused
	Error   string `json:"error,omitempty"`
	// Lost is the number of refused requests before this one that are not in the log because there were too many.
	Lost uint64 `json:"not_logged_before,omitempty"`
}

// The outcomes of an action.
const (
	OutcomeOK      = "ok"
	OutcomeFailed  = "failed"
	OutcomeRefused = "refused"
)

// StandardError is the name of the audit log that goes to the standard error stream.
const StandardError = "stderr"

// maxAuditText bounds each text of an event: clients choose names.
const maxAuditText = 500

// auditLog writes events, one JSON object a line.
type auditLog struct {
	mu      sync.Mutex
	to      io.Writer // guarded by mu
	name    string
	close   func() error
	refused budget
}

// openAudit opens a log. Lines are appended, each in one write, so that a file may be truncated while the server runs.
func openAudit(name string, stderr io.Writer) (*auditLog, error) {
	a := &auditLog{to: stderr, name: name, close: func() error { return nil }, refused: budget{burst: auditBurst, interval: auditEvery}}
	switch name {
	case "":
		return nil, nil //nolint:nilnil // there is none
	case StandardError:
		return a, nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--audit-log: %w", err)
	}
	a.to, a.close = f, f.Close
	return a, nil
}

func (a *auditLog) write(e *Event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err = a.to.Write(append(b, '\n'))
	return err
}

// Audits reports whether there is an audit log.
func (g *Guard) Audits() bool { return g != nil && g.audit != nil }

// Record writes a control action to the audit log, if there is one, with err as its outcome.
func (g *Guard) Record(who *Identity, e Event, err error) {
	if !g.Audits() {
		return
	}
	e.Outcome = OutcomeOK
	if err != nil {
		e.Outcome, e.Error = OutcomeFailed, err.Error()
	}
	g.append(who, &e)
}

// refused counts, logs and records a refused request.
func (g *Guard) refused(who *Identity, e Event, reason *RefusedError) {
	g.counts[reason.Reason].Add(1)
	e.Who, e.By = nameOf(who)
	g.notice(&e, cut(reason.Text))
	if !g.Audits() {
		return
	}
	lost, ok := g.audit.refused.take(g.set.Now())
	if !ok {
		return
	}
	e.Outcome, e.Error, e.Lost = OutcomeRefused, reason.Text, lost
	g.append(who, &e)
}

func (g *Guard) append(who *Identity, e *Event) {
	e.Time = g.set.Now().UTC().Format(time.RFC3339Nano)
	e.Who, e.By = nameOf(who)
	e.Object, e.Error = cut(e.Object), cut(e.Error)
	if err := g.audit.write(e); err != nil {
		if _, ok := g.broken.take(g.set.Now()); ok {
			err = diskfull.Explain(err, g.audit.name, "set another --audit-log")
			g.set.Log.Error("the audit log cannot be written", slog.String("error", err.Error()))
		}
	}
}

func nameOf(who *Identity) (name, by string) {
	if who == nil {
		return byAnonymous, ""
	}
	return cut(who.Name), who.By
}

func cut(s string) string {
	if len(s) > maxAuditText {
		return s[:maxAuditText] + "..."
	}
	return s
}
