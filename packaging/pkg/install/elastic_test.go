package install

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

func TestElasticsLinkAndUnmappedFilesAreSkippedOnlyInElasticsPackages(t *testing.T) {
	const top, home = "elastic-agent-8.15.5-linux-x86_64", "data/elastic-agent-1c8f0e"
	sound := []fakepkg.Entry{
		{Name: top + "/", Kind: fakepkg.Folder},
		{Name: top + "/manifest.yaml", Body: "version: co.elastic.agent/v1\nkind: PackageManifest\npackage:\n  version: 8.15.5\n  hash: 1c8f0e7a\n  versioned-home: " + home +
			"\n  path-mappings:\n    - " + home + ": data/elastic-agent-8.15.5-1c8f0e\n"},
		{Name: top + "/" + home + "/elastic-agent", Body: "#!/bin/sh\n", Mode: 0o755},
	}
	link := fakepkg.Entry{Name: top + "/elastic-agent", Kind: fakepkg.Symlink, Link: home + "/elastic-agent"}
	outside := fakepkg.Entry{Name: top + "/data/other/file", Body: "x"}
	for name, c := range map[string]struct {
		more            []fakepkg.Entry
		elastic, muster string // why it is refused; empty if it is not
	}{
		"as it is":             {nil, "", ""},
		"a link at the top":    {[]fakepkg.Entry{link}, "", "is a symbolic link"},
		"outside the mappings": {[]fakepkg.Entry{outside}, "", "outside the versioned home"},
		"a link further down":  {[]fakepkg.Entry{{Name: top + "/data/link", Kind: fakepkg.Symlink, Link: "/etc"}}, "is a symbolic link", "is a symbolic link"},
		"a link beside it":     {[]fakepkg.Entry{{Name: "link", Kind: fakepkg.Symlink, Link: "/etc"}}, "is a symbolic link", "is a symbolic link"},
		"a link that climbs":   {[]fakepkg.Entry{{Name: top + "/..", Kind: fakepkg.Symlink, Link: "/etc"}}, "leads out of the package", "leads out of the package"},
		"a hard link":          {[]fakepkg.Entry{{Name: top + "/x", Kind: fakepkg.Hardlink, Link: "/etc/passwd"}}, "is a hard link", "is a hard link"},
	} {
		t.Run(name, func(t *testing.T) {
			archive := fakepkg.Write(t, t.TempDir(), top+".tar.gz", append(append([]fakepkg.Entry{}, sound...), c.more...))
			check := func(who string, contents *Contents, err error, why string) {
				if why == "" && (err != nil || contents.Top != top || contents.Manifest.Package.Version != "8.15.5") {
					t.Errorf("%s: %v", who, err)
				}
				if why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
					t.Errorf("%s: %v, want %q", who, err, why)
				}
			}
			contents, err := InspectElastic(t.Context(), disk.OS{}, archive)
			check("Elastic's", contents, err, c.elastic)
			contents, err = Inspect(t.Context(), archive)
			check("Muster's", contents, err, c.muster)
		})
	}
}
