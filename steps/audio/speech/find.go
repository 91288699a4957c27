package speech

// finder is the state of one recording. Positions are in samples; 0 stands for none.
type finder struct {
	speaking bool
	start    int64     // of the current segment
	pause    int64     // where the silence that may end the segment began
	pauses   []silence // in the current segment, at which it may be cut
}

// silence is a pause in a segment.
type silence struct{ start, length int64 }

// find appends the segments of a recording of length samples to found, before they are widened.
func (s *step) find(f *finder, found []segment, speech []float32, length int64) []segment {
	*f = finder{pauses: f.pauses[:0]}
	for i, p := range speech {
		at, p := int64(i)*s.window, float64(p)
		if p >= s.start && f.pause > 0 { // speech goes on
			if n := at - f.pause; float64(n) > s.cut {
				f.pauses = append(f.pauses, silence{f.pause, n})
			}
			f.pause = 0
		}
		if p >= s.start && !f.speaking {
			f.speaking, f.start = true, at
			continue
		}
		if f.speaking && s.limited && float64(at-f.start) > s.maxSpeech {
			if found = f.cut(found, at); !f.speaking {
				continue
			}
		}
		if p < s.end && f.speaking {
			found = s.quiet(f, found, at)
		}
	}
	if f.speaking && float64(length-f.start) > s.minSpeech {
		found = append(found, segment{f.start, length})
	}
	return found
}

// cut ends a segment that is too long: at its longest pause, behind which the next one begins, or here.
func (f *finder) cut(found []segment, at int64) []segment {
	if len(f.pauses) == 0 {
		found = append(found, segment{f.start, at})
		*f = finder{pauses: f.pauses[:0]}
		return found
	}
	longest := f.pauses[0]
	for _, p := range f.pauses {
		if p.length > longest.length {
			longest = p
		}
	}
	found = append(found, segment{f.start, longest.start})
	*f = finder{speaking: true, start: longest.start + longest.length, pauses: f.pauses[:0]}
	return found
}

// quiet notes silence in a segment, and ends the segment when the silence is long enough.
func (s *step) quiet(f *finder, found []segment, at int64) []segment {
	if f.pause == 0 {
		f.pause = at
	}
	if float64(at-f.pause) < s.minPause {
		return found
	}
	if float64(f.pause-f.start) > s.minSpeech {
		found = append(found, segment{f.start, f.pause})
	}
	*f = finder{pauses: f.pauses[:0]}
	return found
}

// widen adds s.pad to both ends of each segment, or half of the silence between two where that is less.
func (s *step) widen(found []segment, length int64) {
	if len(found) == 0 {
		return
	}
	before := func(at int64) int64 { return int64(max(0, float64(at)-s.pad)) }
	after := func(at int64) int64 { return int64(min(float64(length), float64(at)+s.pad)) }
	found[0].start = before(found[0].start)
	for i := range found {
		g := &found[i]
		if i == len(found)-1 {
			g.end = after(g.end)
			return
		}
		next := &found[i+1]
		if n := next.start - g.end; float64(n) < 2*s.pad {
			g.end += n / 2
			next.start = max(0, next.start-n/2)
		} else {
			g.end, next.start = after(g.end), before(next.start)
		}
	}
}
