package tritonlib

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/crash"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// keep replaces the process whenever it ends, until the model is closed.
func (m *model) keep(p *process) {
	for {
		select {
		case <-p.Ended:
		case <-m.life.Done():
			p.close()
			return
		}
		fails := m.fails.Add(1)
		m.log.ErrorContext(m.life, "the process of a backend library ended", slog.Int("pid", p.PID), slog.String("reason", status.Line(p.Why)))
		m.publish(nil, time.Now().Add(crash.Delay(fails)), p.Why)
		p.close()
		for {
			select {
			case <-time.After(crash.Delay(fails)):
			case <-m.life.Done():
				return
			}
			m.restarts.started()
			made, err := m.again()
			if err == nil {
				p = made
				break
			}
			if m.life.Err() != nil {
				return
			}
			fails = m.fails.Add(1)
			m.log.ErrorContext(m.life, "the process of a backend library cannot be started again", slog.String("reason", status.Text(err)))
			m.publish(nil, time.Now().Add(crash.Delay(fails)), status.Text(err))
		}
	}
}

// again starts a process with the instances that there are, and publishes it.
func (m *model) again() (*process, error) {
	p, _, err := m.start(m.life)
	if err != nil {
		return nil, err
	}
	m.changes.Lock()
	defer m.changes.Unlock()
	err = p.command(m.life, m.ports())
	for _, x := range m.list() {
		if err == nil {
			err = p.command(m.life, x.spec)
		}
	}
	if err != nil {
		p.close()
		return nil, err
	}
	m.publish(p, time.Time{}, "")
	return p, nil
}

func (m *model) publish(p *process, next time.Time, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Store(p)
	m.next, m.why = next, why
	switch {
	case p != nil:
		m.since = time.Time{}
	case m.since.IsZero():
		m.since = time.Now()
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// current returns the process, for which it waits. The caller must release it.
func (m *model) current(ctx context.Context) (*process, error) {
	for {
		if p := m.now.Load(); p != nil && p.Alive() && p.Use() {
			return p, nil
		}
		m.mu.Lock()
		changed, next, why := m.changed, m.next, m.why
		m.mu.Unlock()
		if p := m.now.Load(); p != nil && p.Alive() {
			continue
		}
		if left := time.Until(next); left > crash.Patience {
			return nil, crash.Refusal(m.name, left, why)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, status.ErrCancelled
		case <-m.life.Done():
			return nil, status.Reasonf(status.ModelNotReady, "model '%s' is closed", m.name)
		}
	}
}

// down returns why there is no process, and since when: zero if that is not known yet. It is empty if there is one.
func (m *model) down() (why string, since time.Time) {
	p := m.now.Load()
	if p != nil && p.Alive() {
		return "", time.Time{}
	}
	m.mu.Lock()
	why, since = m.why, m.since
	m.mu.Unlock()
	if p != nil { // nothing has noticed its end yet
		why = p.Ending()
	}
	return "the process of the backend library is started again, it ended: " + status.Line(why), since
}

// restarts counts the restarts of a model's process. Nil counts nothing.
type restarts struct {
	family *telemetry.CustomFamily
	count  *telemetry.CustomMetric
}

// restartsName is the name of the metric.
const restartsName = "tutti_backend_library_restarts_total"

func countRestarts(metrics *telemetry.Metrics, s *backends.Settings) *restarts {
	if metrics == nil {
		return nil
	}
	family, err := metrics.Custom(restartsName, "Number of processes of backend libraries that were started again", telemetry.CustomCounter)
	if err != nil { // a model has a family of that name
		return nil
	}
	count, err := family.Metric(map[string]string{"model": s.Model, "version": strconv.FormatInt(s.Version, 10)}, nil)
	if err != nil {
		family.Drop()
		return nil
	}
	return &restarts{family, count}
}

func (r *restarts) started() {
	if r != nil {
		_ = r.count.Add(1) // it cannot fail for a counter
	}
}

func (r *restarts) close() {
	if r != nil {
		r.count.Drop()
		r.family.Drop()
	}
}
