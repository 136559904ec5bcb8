// Package elasticpkg makes packages of Elastic Agents for tests, and signs them as Elastic does.
package elasticpkg

import (
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"

	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// Publisher signs packages as Elastic does, with a key of its own.
type Publisher struct {
	// PublicKey is armored.
	PublicKey string
	entity    *openpgp.Entity
}

// NewPublisher returns a publisher with a new key.
func NewPublisher(t testing.TB) Publisher {
	t.Helper()
	e, err := openpgp.NewEntity("Elastic in a test", "", "test@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	w, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Serialize(w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return Publisher{PublicKey: text.String(), entity: e}
}

// KeyID returns the id of the key.
func (p Publisher) KeyID() string { return p.entity.PrimaryKey.KeyIdString() }

// hash is that of all packages.
const hash = "1c8f0e7a25d34b6fbf17a0b4e9c3d2a185f7e601"

// Entries returns the files of the archive of a version, without an extension of file. It
// has what Elastic's have: a manifest that renames the home, a link at the top, and files
// that are not mapped.
func Entries(file, version string) []fakepkg.Entry {
	base, _, _ := strings.Cut(version, "+")
	base, snapshot := strings.CutSuffix(base, "-SNAPSHOT")
	home := "data/elastic-agent-" + hash[:6]
	to := "data/elastic-agent-" + version + "-" + hash[:6]
	manifest := "version: co.elastic.agent/v1\nkind: PackageManifest\npackage:\n  version: " + base + "\n  snapshot: " + strconv.FormatBool(snapshot) +
		"\n  hash: " + hash + "\n  fips: false\n  versioned-home: " + home + "\n  path-mappings:\n    - " + home + ": " + to + "\n      manifest.yaml: " + to + "/manifest.yaml\n" +
		"  flavors:\n    basic: [agentbeat]\n"
	return []fakepkg.Entry{
		{Name: file + "/", Kind: fakepkg.Folder},
		{Name: file + "/manifest.yaml", Body: manifest},
		{Name: file + "/.elastic-agent.active.commit", Body: hash},
		{Name: file + "/elastic-agent", Kind: fakepkg.Symlink, Link: home + "/elastic-agent"},
		{Name: file + "/elastic-agent.yml", Body: "outputs: {}\n"},
		{Name: file + "/data/other/readme", Body: "outside the mapped paths"},
		{Name: file + "/" + home + "/elastic-agent", Body: "#!/bin/sh\necho " + version + "\n", Mode: 0o755},
		{Name: file + "/" + home + "/package.version", Body: version},
	}
}

// Archive writes the archive of a version for linux on x86_64 into dir, with .sha512 and
// .asc beside, and returns its path.
func (p Publisher) Archive(t testing.TB, dir, version string) string {
	t.Helper()
	name := "elastic-agent-" + version + "-linux-x86_64"
	return p.Write(t, dir, name+".tar.gz", Entries(name, version))
}

// Write writes and signs an archive with these entries.
func (p Publisher) Write(t testing.TB, dir, file string, entries []fakepkg.Entry) string {
	t.Helper()
	path := fakepkg.Write(t, dir, file, entries)
	p.Sign(t, path)
	return path
}

// Sign writes .sha512 and .asc of an archive.
func (p Publisher) Sign(t testing.TB, path string) {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(body)
	var signature bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&signature, p.entity, bytes.NewReader(body), nil); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{".sha512": hex.EncodeToString(sum[:]) + "  " + filepath.Base(path) + "\n", ".asc": signature.String()} {
		if err := os.WriteFile(path+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
