// Package host describes the machine an agent runs on, in the shape Fleet calls
// local_metadata: what the server's queries select agents by. Enrolment and
// every check-in carry it.
package host

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"runtime"
	"strings"
)

// Info is what is read from the machine. It changes so rarely that it is read
// once, at start.
type Info struct {
	ID           string // of the machine, stable over reboots; empty if unknown
	Hostname     string
	Architecture string // as Fleet spells it: x86_64, arm64
	IPs, MACs    []string
	OS           OS
}

// OS is the operating system.
type OS struct {
	Family   string `json:"family"`
	Full     string `json:"full,omitempty"`
	Kernel   string `json:"kernel,omitempty"`
	Name     string `json:"name"`
	Platform string `json:"platform"`
	Type     string `json:"type"`
	Version  string `json:"version"`
}

// Agent is the part of the metadata the agent itself is.
type Agent struct {
	ID       string
	Version  string // full version
	Snapshot bool
	Build    string // version, hash and what else tells builds apart
	LogLevel string
}

// Metadata renders local_metadata.
func (i Info) Metadata(a Agent) json.RawMessage {
	type build struct {
		Original string `json:"original"`
	}
	type agent struct {
		ID          string `json:"id"`
		Version     string `json:"version"`
		Snapshot    bool   `json:"snapshot"`
		Upgradeable bool   `json:"upgradeable"`
		LogLevel    string `json:"log_level"`
		Build       build  `json:"build"`
	}
	var m struct {
		Elastic struct {
			Agent agent `json:"agent"`
		} `json:"elastic"`
		Host struct {
			Architecture string   `json:"architecture"`
			Hostname     string   `json:"hostname"`
			ID           string   `json:"id"`
			IP           []string `json:"ip"`
			MAC          []string `json:"mac"`
			Name         string   `json:"name"`
		} `json:"host"`
		OS OS `json:"os"`
	}
	m.Elastic.Agent = agent{
		ID: a.ID, Version: a.Version, Snapshot: a.Snapshot, Upgradeable: true,
		LogLevel: a.LogLevel, Build: build{a.Build},
	}
	m.Host.Architecture, m.Host.Hostname, m.Host.Name = i.Architecture, i.Hostname, i.Hostname
	m.Host.ID, m.Host.IP, m.Host.MAC = i.ID, notNil(i.IPs), notNil(i.MACs)
	m.OS = i.OS
	b, err := json.Marshal(m)
	if err != nil {
		panic("host: strings cannot fail to encode: " + err.Error())
	}
	return b
}

// notNil: the server's mapping wants a list, also an empty one.
func notNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// Read asks the machine. What it does not tell is left empty.
func Read() Info {
	i := Info{Architecture: architecture(runtime.GOARCH), ID: machineID(), OS: readOS()}
	if name, err := os.Hostname(); err == nil {
		i.Hostname = name
	}
	i.IPs, i.MACs = addresses()
	return i
}

func architecture(goarch string) string {
	switch goarch {
	case "amd64":
		return "x86_64"
	case "386":
		return "i686"
	}
	return goarch
}

func machineID() string {
	for _, file := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if b, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	return ""
}

func addresses() (ips, macs []string) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, nil
	}
	for _, n := range interfaces {
		if n.Flags&net.FlagUp == 0 {
			continue
		}
		if len(n.HardwareAddr) > 0 {
			macs = append(macs, strings.ToUpper(strings.ReplaceAll(n.HardwareAddr.String(), ":", "-")))
		}
		list, err := n.Addrs()
		if err != nil {
			continue
		}
		for _, a := range list {
			ips = append(ips, a.String())
		}
	}
	return ips, macs
}

// ParseOSRelease reads /etc/os-release, see os-release(5).
func ParseOSRelease(data []byte) OS {
	fields := map[string]string{}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		key, value, ok := strings.Cut(strings.TrimSpace(s.Text()), "=")
		if ok && !strings.HasPrefix(key, "#") {
			fields[key] = strings.Trim(value, `"'`)
		}
	}
	o := OS{Type: "linux", Platform: fields["ID"], Version: fields["VERSION_ID"], Name: fields["NAME"], Full: fields["PRETTY_NAME"]}
	o.Family = family(o.Platform, strings.Fields(fields["ID_LIKE"]))
	return o
}

// family is what Fleet's queries group by.
func family(id string, like []string) string {
	for _, known := range append([]string{id}, like...) {
		switch known {
		case "debian", "suse", "arch", "alpine", "gentoo":
			return known
		case "rhel", "fedora", "centos":
			return "redhat"
		case "ubuntu":
			return "debian"
		case "opensuse", "sles":
			return "suse"
		}
	}
	return id
}
