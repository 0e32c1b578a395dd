//! Kernels in PTX, which the driver compiles: no CUDA toolkit needed, and any GPU since Maxwell runs them.

use std::time::{Duration, Instant};

use capstan_hw::gpu::nvidia::cuda::{Argument, Context, Device, ptx};

use crate::Result;

/// Vector length.
pub(super) const NUMBERS: usize = 50_000;

const THREADS: u32 = 256;

/// c = a + b, one number per thread.
const VECTOR_ADD: &str = r"
.version 6.0
.target sm_50
.address_size 64
.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 count)
{
    .reg .pred %beyond;
    .reg .b32 %i, %n, %block, %width, %thread;
    .reg .b64 %a, %b, %c, %offset;
    .reg .f32 %x, %y, %z;
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    ld.param.u64 %c, [c];
    ld.param.u32 %n, [count];
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %width, %thread;
    setp.ge.u32 %beyond, %i, %n;
    @%beyond bra done;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %a, %a, %offset;
    add.u64 %b, %b, %offset;
    add.u64 %c, %c, %offset;
    ld.global.f32 %x, [%a];
    ld.global.f32 %y, [%b];
    add.rn.f32 %z, %x, %y;
    st.global.f32 [%c], %z;
done:
    ret;
}
";

/// Eight independent chains of multiply-add per thread, and their sum at the end.
const BURN: &str = r"
.version 6.0
.target sm_50
.address_size 64
.visible .entry burn(.param .u64 out, .param .u32 rounds)
{
    .reg .pred %more;
    .reg .b32 %i, %block, %width, %thread, %left;
    .reg .b64 %out, %offset;
    .reg .f32 %f<8>, %k, %d, %start;
    ld.param.u64 %out, [out];
    ld.param.u32 %left, [rounds];
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %width, %thread;
    cvt.rn.f32.u32 %start, %thread;
    mov.f32 %k, 0f3F7FBE77;
    mov.f32 %d, 0f3A83126F;
    mov.f32 %f0, %start;
    add.f32 %f1, %start, 0f3F800000;
    add.f32 %f2, %start, 0f40000000;
    add.f32 %f3, %start, 0f40400000;
    add.f32 %f4, %start, 0f40800000;
    add.f32 %f5, %start, 0f40A00000;
    add.f32 %f6, %start, 0f40C00000;
    add.f32 %f7, %start, 0f40E00000;
again:
    FMA8 FMA8 FMA8 FMA8
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra again;
    add.f32 %f0, %f0, %f1;
    add.f32 %f2, %f2, %f3;
    add.f32 %f4, %f4, %f5;
    add.f32 %f6, %f6, %f7;
    add.f32 %f0, %f0, %f2;
    add.f32 %f4, %f4, %f6;
    add.f32 %f0, %f0, %f4;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %out, %out, %offset;
    st.global.f32 [%out], %f0;
    ret;
}
";

/// Multiply-adds per thread and round.
const PER_ROUND: f64 = 32.0;

/// Adds two vectors on the GPU and compares with the CPU; returns the first difference.
pub(super) fn vector_add(context: &Context<'_>) -> Result<Option<(usize, f32, f32)>> {
    let a: Vec<f32> = (0..NUMBERS).map(|i| i as f32 * 0.5).collect();
    let b: Vec<f32> = (0..NUMBERS).map(|i| (NUMBERS - i) as f32 * 0.25).collect();
    let (on_a, on_b, on_c) = (context.upload(&a)?, context.upload(&b)?, context.alloc(NUMBERS * 4)?);
    // A stale result must not pass.
    on_c.fill(f32::NAN.to_bits())?;
    let add = context.function(&ptx(VECTOR_ADD), "vector_add")?;
    let count = NUMBERS as u32;
    let arguments = [on_a.argument(), on_b.argument(), on_c.argument(), Argument::U32(count)];
    add.launch(count.div_ceil(THREADS), THREADS, &arguments)?;
    context.synchronise()?;
    let c = on_c.download()?;
    let wanted = a.iter().zip(&b).map(|(x, y)| x + y);
    Ok(wanted.zip(c).enumerate().find(|(_, (wanted, got))| wanted != got).map(|(i, (wanted, got))| (i, wanted, got)))
}

/// Memory bandwidth in bytes per second, read and write, for copies larger than the caches.
pub(super) fn bandwidth(context: &Context<'_>, device: &Device) -> Result<f64> {
    const COPIES: u32 = 20;
    let bytes = usize::try_from((device.memory / 8).min(1 << 30)).unwrap_or(1 << 28);
    let (from, to) = (context.alloc(bytes)?, context.alloc(bytes)?);
    from.fill(0x5a5a_5a5a)?;
    from.copy_to(&to)?;
    context.synchronise()?;
    let started = Instant::now();
    for _ in 0..COPIES {
        from.copy_to(&to)?;
    }
    context.synchronise()?;
    Ok(2.0 * bytes as f64 * f64::from(COPIES) / started.elapsed().as_secs_f64())
}

/// Operations per second under full load, and whether every run gave the same result.
pub(super) fn burn(context: &Context<'_>, device: &Device, time: Duration) -> Result<(f64, bool)> {
    const ROUNDS: u32 = 20_000;
    let blocks = device.multiprocessors * 8;
    let threads = blocks * THREADS;
    let code = BURN.replace("FMA8", &(0..8).map(|i| format!("fma.rn.f32 %f{i}, %f{i}, %k, %d;\n")).collect::<String>());
    let (burn, out) = (context.function(&ptx(&code), "burn")?, context.alloc(threads as usize * 4)?);
    let arguments = [out.argument(), Argument::U32(ROUNDS)];
    burn.launch(blocks, THREADS, &arguments)?;
    context.synchronise()?;
    let first = out.download()?;
    let (started, mut runs, mut same) = (Instant::now(), 0u32, true);
    while started.elapsed() < time {
        burn.launch(blocks, THREADS, &arguments)?;
        context.synchronise()?;
        runs += 1;
    }
    let elapsed = started.elapsed().as_secs_f64();
    same &= out.download()?.iter().zip(&first).all(|(a, b)| a.to_bits() == b.to_bits());
    let operations = f64::from(threads) * f64::from(ROUNDS) * PER_ROUND * 2.0 * f64::from(runs);
    Ok((operations / elapsed, same))
}

/// Peer-to-peer bandwidth in bytes per second.
pub(super) fn between(a: &Context<'_>, b: &Context<'_>) -> Result<f64> {
    const BYTES: usize = 256 << 20;
    const COPIES: u32 = 10;
    b.enter()?;
    let to = b.alloc(BYTES)?;
    a.enter()?;
    let from = a.alloc(BYTES)?;
    from.copy_to_peer(&to)?;
    a.synchronise()?;
    let started = Instant::now();
    for _ in 0..COPIES {
        from.copy_to_peer(&to)?;
    }
    a.synchronise()?;
    Ok(BYTES as f64 * f64::from(COPIES) / started.elapsed().as_secs_f64())
}
