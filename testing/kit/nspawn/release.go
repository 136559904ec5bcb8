//go:build linux

package nspawn

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// release is a Debian release and its package source.
type release struct {
	codename string
	mirror   string
	keyring  string // empty means the default of debootstrap
}

// thisRelease returns the release of this machine and its source.
func thisRelease() (release, error) {
	osRelease, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return release{}, err
	}
	r := release{codename: value(string(osRelease), "VERSION_CODENAME")}
	if r.codename == "" {
		return r, fmt.Errorf("/etc/os-release names no VERSION_CODENAME: test machines are made on Debian and its kin")
	}
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, file := range append([]string{"/etc/apt/sources.list"}, files...) {
		text, _ := os.ReadFile(file) // a missing file has no sources
		if r.mirror, r.keyring = source(filepath.Ext(file), string(text), r.codename); r.mirror != "" {
			return r, nil
		}
	}
	return r, fmt.Errorf("no source in /etc/apt has the component main of %s over http or https", r.codename)
}

// value returns the value of KEY=value, without quotes.
func value(text, key string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return ""
}

// source returns the first source of a release's component main in a file of apt. The
// extension determines the format of the file.
func source(extension, text, codename string) (mirror, keyring string) {
	if extension == ".sources" {
		for stanza := range strings.SplitSeq(text, "\n\n") {
			if mirror, keyring = fromStanza(stanza, codename); mirror != "" {
				return mirror, keyring
			}
		}
		return "", ""
	}
	for line := range strings.Lines(text) {
		if mirror = fromLine(line, codename); mirror != "" {
			return mirror, ""
		}
	}
	return "", ""
}

func fromStanza(text, codename string) (mirror, keyring string) {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, v, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, " ") {
			fields[strings.ToLower(name)] = strings.TrimSpace(v)
		}
	}
	has := func(field, word string) bool { return slices.Contains(strings.Fields(fields[field]), word) }
	if !has("types", "deb") || !has("suites", codename) || !has("components", "main") || fields["enabled"] == "no" {
		return "", ""
	}
	// A key inside the file is also in debootstrap's own keyring.
	if k := fields["signed-by"]; strings.HasPrefix(k, "/") {
		keyring = k
	}
	for _, uri := range strings.Fields(fields["uris"]) {
		if fetchable(uri) {
			return uri, keyring
		}
	}
	return "", ""
}

func fromLine(line, codename string) string {
	f := strings.Fields(line)
	if len(f) == 0 || f[0] != "deb" {
		return ""
	}
	f = f[1:]
	if len(f) > 0 && strings.HasPrefix(f[0], "[") {
		end := slices.IndexFunc(f, func(s string) bool { return strings.HasSuffix(s, "]") })
		f = f[end+1:]
	}
	if len(f) < 3 || f[1] != codename || !slices.Contains(f[2:], "main") || !fetchable(f[0]) {
		return ""
	}
	return f[0]
}

func fetchable(uri string) bool {
	return strings.HasPrefix(uri, "http://") || strings.HasPrefix(uri, "https://")
}
