package configfile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// maxDiff bounds a diff in bytes: some thousand lines, more than a person reads of one host.
const maxDiff = 64 << 10

// Diff returns a unified diff of the files of a host, empty if nothing changes. It ends with a
// line that says so if it was cut.
func Diff(before, after []agentapi.RenderedFile) string {
	was, is := byPath(before), byPath(after)
	paths := slices.Sorted(maps.Keys(is))
	for path := range was {
		if is[path] == nil {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	var out strings.Builder
	for i, path := range paths {
		out.WriteString(diffFile(was[path], is[path]))
		if out.Len() > maxDiff {
			whole := out.String()
			end := strings.LastIndexByte(whole[:maxDiff], '\n') + 1
			return fmt.Sprintf("%s(cut after %d bytes; %d more files are not compared)\n", whole[:end], end, len(paths)-i-1)
		}
	}
	return out.String()
}

func byPath(files []agentapi.RenderedFile) map[string]*agentapi.RenderedFile {
	m := make(map[string]*agentapi.RenderedFile, len(files))
	for i := range files {
		m[files[i].Path] = &files[i]
	}
	return m
}

// diffFile compares one file; nil means that there is none.
func diffFile(was, is *agentapi.RenderedFile) string {
	from, to := "/dev/null", "/dev/null"
	var old, now string
	if was != nil {
		from, old = was.Path, was.Content
	}
	if is != nil {
		to, now = is.Path, is.Content
	}
	// As diff appends the times of files, after a tab.
	if a, b := rights(was), rights(is); a != b {
		from, to = strings.TrimSuffix(from+"\t"+a, "\t"), strings.TrimSuffix(to+"\t"+b, "\t")
	}
	if text := udiff.Unified(from, to, old, now); text != "" || from == to {
		return text
	}
	return fmt.Sprintf("--- %s\n+++ %s\n", from, to)
}

// rights describes who may do what with a file.
func rights(f *agentapi.RenderedFile) string {
	if f == nil {
		return ""
	}
	mode := f.Mode
	if len(mode) == 3 {
		mode = "0" + mode
	}
	text := cmp.Or(mode, "0644")
	if f.Owner != "" || f.Group != "" {
		text += " " + f.Owner + ":" + f.Group
	}
	return text
}
