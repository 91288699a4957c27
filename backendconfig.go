package tutti

import (
	"maps"
	"slices"
	"strings"

	"tutti/backends"
)

// keyComplete is the setting of all backends that --disable-auto-complete-config stands for.
const keyComplete = "auto-complete-config"

// backendSettings gives every backend those settings of all backends that it reads and
// does not have of its own. What nobody reads is noticed, not refused: it may be meant
// for a backend that this program lacks.
func backendSettings(r *backends.Registry, given map[string]map[string]string) (map[string]map[string]string, []Notice) {
	settings := map[string]map[string]string{}
	for _, name := range r.Names() {
		settings[name] = map[string]string{}
		for _, key := range r.ByName(name).Keys {
			if v, ok := given[""][key]; ok {
				settings[name][key] = v
			}
		}
		maps.Copy(settings[name], given[name])
	}
	var notices []Notice
	for _, name := range slices.Sorted(maps.Keys(given)) {
		for _, key := range slices.Sorted(maps.Keys(given[name])) {
			if text := unread(r, name, key); text != "" {
				notices = append(notices, Notice{Option: "--backend-config " + strings.TrimPrefix(name+","+key, ","), Text: text})
			}
		}
	}
	return settings, notices
}

// unread says why a setting changes nothing, or nothing when it does.
func unread(r *backends.Registry, name, key string) string {
	f := r.ByName(name)
	switch {
	case name == "" && key == keyComplete:
	case name == "":
		if !slices.ContainsFunc(r.Names(), func(n string) bool { return slices.Contains(r.ByName(n).Keys, key) }) {
			return "accepted without effect: no backend reads this key"
		}
	case f == nil:
		return "accepted without effect: there is no such backend, expected one of " + strings.Join(r.Names(), ", ")
	case !slices.Contains(f.Keys, key):
		return "accepted without effect: the backend does not read this key" + expectedKeys(f.Keys)
	}
	return ""
}

func expectedKeys(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return ", expected one of " + strings.Join(keys, ", ")
}
