/*
 * The boot sector of the emulated Intel host. Bochs has put start.c, the kernel and its initial ram
 * disk into memory already (optramimage): this asks the BIOS for the memory map, enters protected
 * mode and goes there. What it leaves for start.c: MAP.
 */
#include "layout.h"
        .code16
        .globl  boot
boot:   cli
        xor     %ax, %ax
        mov     %ax, %ds
        mov     %ax, %es
        mov     %ax, %ss
        mov     $boot, %sp
        /* INT 15h, E820h (ACPI specification, 15.1): an entry a call, until EBX is 0 again. */
        xor     %ebx, %ebx
        mov     $MAP, %di
1:      mov     $0xe820, %eax
        mov     $0x534d4150, %edx /* SMAP */
        mov     $20, %ecx
        movl    $1, 20(%di)
        int     $0x15
        jc      2f
        add     $MAP_ENTRY, %di
        test    %ebx, %ebx
        jnz     1b
2:      movl    $0, 20(%di) /* no entry any more */
        in      $0x92, %al
        or      $2, %al /* A20 */
        out     %al, $0x92
        lgdt    table
        mov     %cr0, %eax
        or      $1, %al
        mov     %eax, %cr0
        ljmpl   $8, $3f
        .code32
3:      mov     $16, %ax
        mov     %ax, %ds
        mov     %ax, %es
        mov     %ax, %ss
        mov     $boot, %esp
        mov     $START, %eax
        jmp     *%eax

        .balign 8
gdt:    .quad   0, 0x00cf9b000000ffff, 0x00cf93000000ffff
table:  .word   23
        .long   gdt
        .org    510
        .word   0xaa55
