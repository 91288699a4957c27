package dataset

import "os"

// SetPartFile replaces the file that a part is written to.
func SetPartFile(p *Part, f *os.File) { p.to.w = f }
