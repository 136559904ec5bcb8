package install

import (
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// headLength is how many bytes of a program are read. ELF and Mach-O need 64. A PE
// header begins behind its stub: at 128 as Go's linker writes it, at some 300 as
// others do.
const headLength = 1 << 10

// platform is the platform that a program's header states. The zero value stands for
// a script or an unknown format, which may run anywhere.
type platform struct {
	// oses and arches are Go's names. There are several where the format does not
	// distinguish them; the most likely comes first.
	oses   []string
	arches []string
}

func (p platform) String() string {
	name := func(names []string) string {
		if len(names) == 0 {
			return "unknown"
		}
		return names[0]
	}
	return name(p.oses) + "/" + name(p.arches)
}

// isProgram reports whether the file of an agent's package is a program whose platform must
// be the package's.
func isProgram(name string) bool {
	switch strings.TrimSuffix(path.Base(name), ".exe") {
	case "muster-agent", "muster-watcher", "elastic-agent":
		return true
	}
	return false
}

// platformOf reads the header of a program. The debug packages follow offsets through
// the whole file, which an attacker may have written; the few fields needed here are
// at fixed offsets.
func platformOf(head []byte) platform {
	switch {
	case len(head) >= 20 && string(head[:4]) == elf.ELFMAG:
		return elfPlatform(head)
	case len(head) >= 64 && string(head[:2]) == "MZ":
		return pePlatform(head)
	case len(head) >= 8:
		return machoPlatform(head)
	}
	return platform{}
}

func elfPlatform(head []byte) platform {
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	little, wide := order == binary.LittleEndian, elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64
	p := platform{oses: elfSystem(elf.OSABI(head[elf.EI_OSABI]))}
	if arch := elfArch(elf.Machine(order.Uint16(head[18:])), little, wide); arch != "" {
		p.arches = []string{arch}
	}
	return p
}

// elfSystem returns the systems for an OS ABI. Most systems leave the field empty,
// Linux among them.
func elfSystem(abi elf.OSABI) []string {
	switch abi {
	case elf.ELFOSABI_NONE, elf.ELFOSABI_LINUX:
		return []string{"linux", "android", "dragonfly", "illumos", "solaris"}
	case elf.ELFOSABI_FREEBSD:
		return []string{"freebsd"}
	case elf.ELFOSABI_NETBSD:
		return []string{"netbsd"}
	case elf.ELFOSABI_OPENBSD:
		return []string{"openbsd"}
	case elf.ELFOSABI_SOLARIS:
		return []string{"solaris", "illumos"}
	}
	return nil
}

func elfArch(machine elf.Machine, little, wide bool) string {
	pick := func(cond bool, yes, no string) string {
		if cond {
			return yes
		}
		return no
	}
	switch machine {
	case elf.EM_X86_64:
		return "amd64"
	case elf.EM_386:
		return "386"
	case elf.EM_AARCH64:
		return "arm64"
	case elf.EM_ARM:
		return "arm"
	case elf.EM_RISCV:
		return pick(wide, "riscv64", "riscv")
	case elf.EM_PPC64:
		return pick(little, "ppc64le", "ppc64")
	case elf.EM_S390:
		return "s390x"
	case elf.EM_LOONGARCH:
		return "loong64"
	case elf.EM_MIPS:
		return pick(wide, "mips64", "mips") + pick(little, "le", "")
	}
	return ""
}

func pePlatform(head []byte) platform {
	p := platform{oses: []string{"windows"}}
	at := int64(binary.LittleEndian.Uint32(head[0x3c:]))
	if at+6 > int64(len(head)) || string(head[at:at+4]) != "PE\x00\x00" {
		return platform{}
	}
	switch binary.LittleEndian.Uint16(head[at+4:]) {
	case pe.IMAGE_FILE_MACHINE_AMD64:
		p.arches = []string{"amd64"}
	case pe.IMAGE_FILE_MACHINE_I386:
		p.arches = []string{"386"}
	case pe.IMAGE_FILE_MACHINE_ARM64:
		p.arches = []string{"arm64"}
	case pe.IMAGE_FILE_MACHINE_ARMNT:
		p.arches = []string{"arm"}
	}
	return p
}

// maxFatArches bounds the count in a universal program, which has two architectures.
// Java classes have the same magic number, with a version above 44 in place of the
// count.
const maxFatArches = 16

func machoPlatform(head []byte) platform {
	darwin := platform{oses: []string{"darwin", "ios"}}
	var cpus []uint32
	switch magic := binary.LittleEndian.Uint32(head); {
	case magic == macho.Magic64 || magic == macho.Magic32:
		cpus = []uint32{binary.LittleEndian.Uint32(head[4:])}
	case binary.BigEndian.Uint32(head) == macho.MagicFat:
		const header, entry = 8, 20
		n := binary.BigEndian.Uint32(head[4:])
		if n > maxFatArches || header+int(n)*entry > len(head) {
			return platform{}
		}
		for i := range int(n) {
			cpus = append(cpus, binary.BigEndian.Uint32(head[header+i*entry:]))
		}
	default:
		return platform{}
	}
	for _, cpu := range cpus {
		switch macho.Cpu(cpu) {
		case macho.CpuAmd64:
			darwin.arches = append(darwin.arches, "amd64")
		case macho.CpuArm64:
			darwin.arches = append(darwin.arches, "arm64")
		}
	}
	return darwin
}

// resolvePlatform refuses programs for another platform than the package's, and fills
// in the platform if the package states none. The keys of programs are names in the
// archive; places is the result of plan. Of a component every executable file counts: what
// is started, only its runtime knows.
func resolvePlatform(p *manifest.Package, programs map[string]platform, places map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		place, unpacked := places[name]
		if !unpacked || p.Component == nil && (!isProgram(name) || strings.Contains(place, "/")) {
			continue // not at the top of the home, so it is never started
		}
		is := programs[name]
		if !fits(is.oses, p.OS) || !fits(is.arches, p.Arch) {
			return &RefusedError{name, fmt.Sprintf("is a program for %s, but the package is for %s/%s", is, p.OS, p.Arch)}
		}
		if p.OS == "" && len(is.oses) > 0 {
			p.OS = is.oses[0]
		}
		// A universal program does not determine the architecture.
		if p.Arch == "" && len(is.arches) == 1 {
			p.Arch = is.arches[0]
		}
	}
	return nil
}

// fits reports whether want is among known. An empty want and an unknown platform
// fit anything.
func fits(known []string, want string) bool {
	return len(known) == 0 || want == "" || slices.Contains(known, want)
}
