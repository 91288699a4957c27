package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// stat holds the fields of /proc/PID/stat that this package uses.
type stat struct {
	pid, parent, group, session int
	reaped                      int64 // CPU time of ended children, in ticks
	started                     int64 // start time, in ticks since boot
	ended                       bool  // a zombie, which its parent has not reaped
}

// running reports whether the process still runs.
func (s stat) running() bool {
	now, err := readStat(s.pid)
	return err == nil && now.started == s.started && !now.ended
}

// readStat reads one process. It returns fs.ErrNotExist if the process is gone.
func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The name in parentheses may hold any character. The third field follows the last parenthesis.
	s := string(text)
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat has %d fields after the name, expected more", pid, len(fields))
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		return n
	}
	return stat{
		pid: pid, parent: int(number(1)), group: int(number(2)), session: int(number(3)), reaped: number(13) + number(14), started: number(19),
		ended: fields[0] == "Z",
	}, nil
}

// Tree lists the processes that belong to a server: itself, its descendants, and orphans that are still in its
// process group or its session. It is empty if none of them runs.
func Tree(pid int) ([]int, error) {
	tree, err := tree(pid)
	if err != nil {
		return nil, err
	}
	pids := make([]int, len(tree))
	for i, s := range tree {
		pids[i] = s.pid
	}
	return pids, nil
}

func tree(pid int) ([]stat, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []stat
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, err := readStat(id)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	own := func(s stat) bool { return s.pid == pid || !s.ended && (s.group == pid || s.session == pid) }
	var in []stat
	for _, s := range all {
		if own(s) {
			in = append(in, s)
		}
	}
	for i := 0; i < len(in); i++ { // in grows during the loop
		for _, s := range all {
			if s.parent == in[i].pid && !slices.Contains(in, s) {
				in = append(in, s)
			}
		}
	}
	return in, nil
}

// gone reports whether a process ended before it was read.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoProcess) }
