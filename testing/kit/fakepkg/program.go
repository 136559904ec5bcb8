package fakepkg

import (
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
)

// Program returns the header of an executable for a platform, by Go's names, which suffices
// to identify it. It returns "" for an unknown platform.
func Program(goos, goarch string) string {
	switch goos {
	case "linux":
		return elfHeader(goarch)
	case "windows":
		return peHeader(goarch)
	case "darwin":
		return machoHeader(goarch)
	}
	return ""
}

func elfHeader(goarch string) string {
	machine := map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV, "s390x": elf.EM_S390, "ppc64le": elf.EM_PPC64,
	}[goarch]
	if machine == 0 {
		return ""
	}
	h := make([]byte, 64)
	copy(h, elf.ELFMAG)
	order, data := binary.ByteOrder(binary.LittleEndian), elf.ELFDATA2LSB
	if goarch == "s390x" {
		order, data = binary.BigEndian, elf.ELFDATA2MSB
	}
	h[elf.EI_CLASS], h[elf.EI_DATA], h[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(data), 1
	order.PutUint16(h[16:], uint16(elf.ET_EXEC))
	order.PutUint16(h[18:], uint16(machine))
	return string(h)
}

func peHeader(goarch string) string {
	machine := map[string]uint16{"amd64": pe.IMAGE_FILE_MACHINE_AMD64, "arm64": pe.IMAGE_FILE_MACHINE_ARM64, "386": pe.IMAGE_FILE_MACHINE_I386}[goarch]
	if machine == 0 {
		return ""
	}
	const at = 0x80 // behind the stub for MS-DOS
	h := make([]byte, at+24)
	copy(h, "MZ")
	binary.LittleEndian.PutUint32(h[0x3c:], at)
	copy(h[at:], "PE\x00\x00")
	binary.LittleEndian.PutUint16(h[at+4:], machine)
	return string(h)
}

func machoHeader(goarch string) string {
	cpu := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[goarch]
	if cpu == 0 {
		return ""
	}
	h := make([]byte, 32)
	binary.LittleEndian.PutUint32(h, macho.Magic64)
	binary.LittleEndian.PutUint32(h[4:], uint32(cpu))
	return string(h)
}
