package httpapi

import (
	"math"
	"net/http"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/logs"
)

// logSettings is the log's settings in the protocol's order of members.
type logSettings struct {
	File    string `json:"log_file"`
	Info    bool   `json:"log_info"`
	Warning bool   `json:"log_warning"`
	Error   bool   `json:"log_error"`
	Verbose uint32 `json:"log_verbose_level"`
	Format  string `json:"log_format"`
}

// logging changes the log's settings on POST, all or none, and answers with all of them.
func (s *Server) logging(w http.ResponseWriter, r *http.Request, _ target) {
	if s.logs == nil {
		writeError(w, lacks("logging"))
		return
	}
	if r.Method == post {
		if err := s.updateLog(w, r); err != nil {
			writeError(w, err)
			return
		}
	}
	set := s.logs.Settings()
	writeJSON(w, logSettings{set.File, set.Info, set.Warning, set.Error, set.Verbose, set.Format})
}

func (s *Server) updateLog(w http.ResponseWriter, r *http.Request) error {
	var u logs.Update
	if err := s.control(w, r, false, func(x *exchange, key string) error { return x.logSetting(&u, key) }); err != nil {
		return err
	}
	err := s.logs.Update(u)
	if u.Format != nil && err != nil && status.CodeOf(err) == status.InvalidArg {
		// The format is all that can be invalid, and over HTTP it has words and a status of its own.
		return status.Errorf(status.Unavailable, "invalid argument for --log_format, got: %s", *u.Format)
	}
	return err
}

// logSetting reads one setting; null leaves it as it is.
func (x *exchange) logSetting(u *logs.Update, key string) error {
	if is, err := x.null(); is || err != nil {
		return err
	}
	switch key {
	case "log_file":
		u.File = new(string)
		return x.p.skip()
	case "log_info":
		return x.logSwitch(&u.Info, key)
	case "log_warning":
		return x.logSwitch(&u.Warning, key)
	case "log_error":
		return x.logSwitch(&u.Error, key)
	case "log_verbose_level":
		n, err := x.unsigned(key)
		if err == nil && n > math.MaxUint32 {
			err = unable(key, notUnsigned)
		}
		level := uint32(n)
		u.Verbose = &level
		return err
	case "log_format":
		name, err := x.text(key)
		format := string(name)
		u.Format = &format
		return err
	default:
		return x.p.skip()
	}
}

func (x *exchange) logSwitch(to **bool, key string) error {
	on, err := x.boolean(key)
	*to = &on
	return err
}
