package tutti

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetStart unmaps what of the program itself its start has touched, most of which serving never needs. What it does
// need comes back out of the system's cache of files as it is used, within a millisecond in all. A server with
// few models is half as large for it.
func forgetStart() error {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	list, err := unchanged(f, path)
	for _, m := range list {
		if !m.code {
			_ = m.advise(unix.MADV_NOHUGEPAGE) // else it may come back by 2 MiB at a time; some systems do not know it
		}
		err = errors.Join(err, m.advise(unix.MADV_DONTNEED))
	}
	return err
}

// mapping is a range of addresses.
type mapping struct {
	at, size uintptr
	code     bool
}

func (m mapping) advise(advice uintptr) error {
	if _, _, e := unix.Syscall(unix.SYS_MADVISE, m.at, m.size, advice); e != 0 {
		return e
	}
	return nil
}

// unchanged returns the mappings of a file that hold nothing but what is in the file, and cannot be written, out of what
// the system says of all.
func unchanged(smaps io.Reader, path string) (list []mapping, err error) {
	var m mapping
	of := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) >= 5 && !strings.HasSuffix(f[0], ":"):
			m = mappingOf(f[0])
			m.code = strings.Contains(f[1], "x")
			of = m.size > 0 && len(f) >= 6 && strings.Join(f[5:], " ") == path && !strings.Contains(f[1], "w") && strings.HasSuffix(f[1], "p")
		case of && len(f) > 1 && f[0] == "Anonymous:" && f[1] == "0":
			list = append(list, m)
		}
	}
	return list, lines.Err()
}

// mappingOf reads FIRST-END, in hexadecimal digits; it returns an empty one when that is something else.
func mappingOf(text string) (m mapping) {
	from, to, _ := strings.Cut(text, "-")
	first, err := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if err == nil && err2 == nil && first < end {
		m = mapping{at: uintptr(first), size: uintptr(end - first)}
	}
	return m
}
