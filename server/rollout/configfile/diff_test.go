package configfile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/rollout/configfile"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func files(list ...agentapi.RenderedFile) []agentapi.RenderedFile { return list }

func TestDiffShowsWhatChangesOnAHost(t *testing.T) {
	web := agentapi.RenderedFile{Path: "/etc/web.conf", Content: "port 80\nworkers 2\n"}
	other := agentapi.RenderedFile{Path: "/etc/a.conf", Content: "a"}
	with := func(f agentapi.RenderedFile, change func(*agentapi.RenderedFile)) agentapi.RenderedFile {
		change(&f)
		return f
	}
	for _, row := range []struct {
		what          string
		before, after []agentapi.RenderedFile
		want          string
	}{
		{"nothing", files(web, other), files(other, web), ""},
		{"no files", nil, nil, ""},
		{
			"a line", files(other, web), files(other, with(web, func(f *agentapi.RenderedFile) { f.Content = "port 8080\nworkers 2\n" })),
			"--- /etc/web.conf\n+++ /etc/web.conf\n@@ -1,2 +1,2 @@\n-port 80\n+port 8080\n workers 2\n",
		},
		{"a new file", nil, files(web), "--- /dev/null\n+++ /etc/web.conf\t0644\n@@ -0,0 +1,2 @@\n+port 80\n+workers 2\n"},
		{"a new, empty file", nil, files(with(web, func(f *agentapi.RenderedFile) { f.Content = "" })), "--- /dev/null\n+++ /etc/web.conf\t0644\n"},
		{"a file that goes", files(other), nil, "--- /etc/a.conf\t0644\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n\\ No newline at end of file\n"},
		{"rights", files(web), files(with(web, func(f *agentapi.RenderedFile) { f.Mode, f.Owner = "0600", "web" })), "--- /etc/web.conf\t0644\n+++ /etc/web.conf\t0600 web:\n"},
		{"the default said", files(web), files(with(web, func(f *agentapi.RenderedFile) { f.Mode = "644" })), ""},
	} {
		if got := configfile.Diff(row.before, row.after); got != row.want {
			t.Errorf("%s:\n%s\nwant:\n%s", row.what, got, row.want)
		}
	}
}

// The largest files that differ in every line take a bounded time and text.
func TestDiffIsBounded(t *testing.T) {
	text := func(every string) string {
		var b strings.Builder
		for i := 0; b.Len() < configfile.MaxOutput-20; i++ {
			fmt.Fprintf(&b, "%s %d\n", every, i%7)
		}
		return b.String()
	}
	last := agentapi.RenderedFile{Path: "/etc/z.conf", Content: "z"}
	start := time.Now()
	got := configfile.Diff(files(agentapi.RenderedFile{Path: "/etc/a.conf", Content: text("a")}), files(agentapi.RenderedFile{Path: "/etc/a.conf", Content: text("b")}, last))
	took := time.Since(start)
	if len(got) > 65<<10 || !strings.HasPrefix(got, "--- /etc/a.conf\n") || !strings.Contains(got, "\n(cut after 655") || !strings.HasSuffix(got, " bytes; 1 more files are not compared)\n") {
		t.Errorf("the diff has %d bytes and ends in %q", len(got), got[max(0, len(got)-100):])
	}
	if took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}
