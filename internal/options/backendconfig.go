package options

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
)

// keyComplete is the setting for all backends that --disable-auto-complete-config stands for.
const keyComplete = "auto-complete-config"

// BackendConfig holds the settings of backends by name; the empty name holds those for every backend. As a flag it
// may be repeated.
type BackendConfig map[string]map[string]string

// String returns an empty text: there is no default to print.
func (BackendConfig) String() string { return "" }

// Set adds a setting: backend,key=value, or for every backend key=value or ,key=value.
func (c BackendConfig) Set(s string) error {
	name, setting, ok := strings.Cut(s, ",")
	if !ok || strings.Contains(name, "=") {
		name, setting = "", s
	}
	key, value, ok := strings.Cut(setting, "=")
	if !ok || key == "" || value == "" {
		return fmt.Errorf("--backend-config option format is '<backend name>,<setting>=<value>'. Got %s", s)
	}
	put((*map[string]map[string]string)(&c), name, key, value)
	return nil
}

// Settings returns the settings of each backend: its own, and those for every backend that it reads and does not
// override. A setting that no backend reads gives a notice, no error, since it may be meant for a backend that this
// program was built without.
func (c BackendConfig) Settings(r *backends.Registry) (map[string]map[string]string, []Notice) {
	settings := map[string]map[string]string{}
	for _, name := range r.Names() {
		settings[name] = map[string]string{}
		for _, key := range r.ByName(name).ConfigKeys {
			if v, ok := c[""][key]; ok {
				settings[name][key] = v
			}
		}
		maps.Copy(settings[name], c[name])
	}
	var notices []Notice
	for _, name := range slices.Sorted(maps.Keys(c)) {
		for _, key := range slices.Sorted(maps.Keys(c[name])) {
			if text := unread(r, name, key); text != "" {
				notices = append(notices, Notice{Option: "--backend-config " + strings.TrimPrefix(name+","+key, ","), Text: text})
			}
		}
	}
	return settings, notices
}

// unread returns the reason that a setting has no effect, empty if it has one.
func unread(r *backends.Registry, name, key string) string {
	f := r.ByName(name)
	switch {
	case name == "" && key == keyComplete:
	case name == "":
		var all []string
		for _, name := range r.Names() {
			all = append(all, r.ByName(name).ConfigKeys...)
		}
		slices.Sort(all)
		if !slices.Contains(all, key) {
			return "accepted without effect: no backend reads this key." + config.DidYouMean(key, slices.Compact(all))
		}
	case f == nil:
		return "accepted without effect: there is no such backend, expected one of " + strings.Join(r.Names(), ", ") + "." + config.DidYouMean(name, r.Names())
	case !slices.Contains(f.ConfigKeys, key):
		return notRead("backend", key, f.ConfigKeys)
	}
	return ""
}

// notRead is the text of a setting that nothing reads.
func notRead(who, key string, keys []string) string {
	text := "accepted without effect: the " + who + " does not read this key"
	if len(keys) > 0 {
		text += ", expected one of " + strings.Join(keys, ", ")
	}
	return text + "." + config.DidYouMean(key, keys)
}
