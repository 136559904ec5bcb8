package enrollment

import (
	"bytes"
	"cmp"
	"regexp"
	"strings"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Platforms are those that commands are made for, in display order.
var Platforms = []string{"linux-amd64", "linux-arm64", "darwin-arm64", "windows-amd64"}

// TokenWord stands for the enrollment token in commands: the server may keep only its hash, and
// who shows a command has the token already. It stands in double quotes, where a shell expands
// $(…), so that a command can read the token from a file. It is in no argument of a program, which
// every user of the host could read in the list of processes. It is not a part of tokenVariable,
// which clients would replace too.
const TokenWord = "YOUR_ENROLLMENT_TOKEN"

// tokenVariable is where the agent reads the token.
const tokenVariable = "MUSTER_ENROLLMENT_TOKEN" //nolint:gosec // a name, not a token

// Access is what a new host must know of the server.
type Access struct {
	AgentURL, CAPin string
	// CA is the certificate with the pin, in PEM.
	CA []byte
	// TrustRoot is the digest of the publishers' root, empty if none is published.
	TrustRoot string
}

// Trusted reports whether there is anything that a host can trust. Otherwise it would refuse
// every upgrade.
func (a Access) Trusted() bool { return a.TrustRoot != "" }

// Install returns the command that installs and enrols the agent of an unpacked package, without
// its token; see WithToken.
func (a Access) Install() string { return "muster-agent " + a.install(shell) }

// WithToken returns a command for the shell that gives the token to one of muster-agent.
func WithToken(command string) string { return tokenVariable + `="` + TokenWord + `" ` + command }

func (a Access) install(quote quoter) string {
	root := cmp.Or(a.TrustRoot, "<digest of the publishers' root>")
	return strings.Join([]string{"install", "--url", quote(a.AgentURL), "--ca-pin", a.CAPin, "--trust-root", root}, " ")
}

// Command returns one line that downloads the newest agent for a platform, installs and enrols
// it: for the shell of root, or for PowerShell as administrator.
//
// curl verifies the server by the certificate that the host pins later. The key of the server's
// own certificate cannot be pinned (curl's --pinnedpubkey compares no other): it is made at each
// start of each server of an installation, and never stored. It reads its header from standard
// input as a configuration, which all its versions can; printf is a part of the shell, and no
// process.
func (a Access) Command(platform string) string {
	if strings.HasPrefix(platform, "windows-") {
		return a.powerShell(platform)
	}
	return strings.Join([]string{
		// In a new folder, so that nothing of an earlier attempt is in the way; below the current
		// one, since programs below /tmp may not be executable.
		`d=$(mktemp -d ./muster-agent.XXXXXX)`,
		`printf '%s\n' ` + strings.Join(a.caLines(shell), " ") + ` >"$d/ca.pem"`,
		`printf 'header = "Authorization: ApiKey %s"\n' "` + TokenWord + `" | curl --config - --fail --cacert "$d/ca.pem" --output "$d/agent.tar.gz" ` + shell(a.download(platform)),
		`tar xzf "$d/agent.tar.gz" -C "$d"`,
		WithToken(`"$d"/*/data/*/muster-agent ` + a.install(shell)),
	}, " && ")
}

// powerShell returns the command for Windows, whose curl.exe uses Schannel: it would ask for
// revocation lists, which a private CA has none of.
func (a Access) powerShell(platform string) string {
	return `$d = (New-Item -ItemType Directory "muster-agent-$(Get-Random)").FullName; ` +
		`Set-Content "$d\ca.pem" ` + strings.Join(a.caLines(alwaysPowerShell), ",") + `; ` +
		`"header = ""Authorization: ApiKey ` + TokenWord + `""" | curl.exe --config - --fail --ssl-no-revoke --cacert "$d\ca.pem" --output "$d\agent" ` + powerShell(a.download(platform)) + `; ` +
		`if ($LASTEXITCODE -eq 0) { tar.exe -xf "$d\agent" -C $d; $env:` + tokenVariable + ` = "` + TokenWord + `"; & (Get-Item "$d\*\data\*\muster-agent.exe") ` + a.install(powerShell) + `; Remove-Item Env:` + tokenVariable + ` }`
}

func (a Access) download(platform string) string {
	return strings.TrimSuffix(a.AgentURL, "/") + agentapi.PathAgent + platform
}

func (a Access) caLines(quote quoter) (lines []string) {
	for line := range bytes.Lines(a.CA) {
		lines = append(lines, quote(string(bytes.TrimSpace(line))))
	}
	return lines
}

// quoter quotes a word for a shell.
type quoter func(word string) string

var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:./-]+$`)

// shell does not quote plain words, so that a command stays readable.
func shell(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func powerShell(word string) string {
	if plain.MatchString(word) && !strings.HasPrefix(word, "@") {
		return word
	}
	return alwaysPowerShell(word)
}

// alwaysPowerShell quotes the words of a list too, where a plain one would be a command.
func alwaysPowerShell(word string) string { return "'" + strings.ReplaceAll(word, "'", "''") + "'" }
