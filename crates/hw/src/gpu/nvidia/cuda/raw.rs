//! CUDA driver calls, each behind a safe function.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

use libloading::Library;

use super::{Argument, Device};
use crate::gpu::nvidia::driver::Roots;
use crate::{Error, Result};

type Code = c_int;
type Handle = *mut c_void;

/// Loads every function once into a struct.
macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*);)*) => {
        struct Functions { $($field: unsafe extern "C" fn($($argument),*) -> Code,)* }

        impl Functions {
            fn load(library: &Library) -> Result<Self> {
                Ok(Self { $($field: {
                    // SAFETY: the signatures are those of cuda.h, which the driver keeps for good.
                    let symbol = unsafe { library.get(concat!($symbol, "\0").as_bytes()) };
                    *symbol.map_err(|_| Error::NotSupported)?
                },)* })
            }
        }
    };
}

functions! {
    init = "cuInit": fn(c_uint);
    error_string = "cuGetErrorString": fn(Code, *mut *const c_char);
    count = "cuDeviceGetCount": fn(*mut c_int);
    device = "cuDeviceGet": fn(*mut c_int, c_int);
    name = "cuDeviceGetName": fn(*mut c_char, c_int, c_int);
    uuid = "cuDeviceGetUuid_v2": fn(*mut [u8; 16], c_int);
    memory = "cuDeviceTotalMem_v2": fn(*mut usize, c_int);
    attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    retain = "cuDevicePrimaryCtxRetain": fn(*mut Handle, c_int);
    release = "cuDevicePrimaryCtxRelease_v2": fn(c_int);
    use_context = "cuCtxSetCurrent": fn(Handle);
    synchronise = "cuCtxSynchronize": fn();
    load_module = "cuModuleLoadData": fn(*mut Handle, *const c_void);
    unload_module = "cuModuleUnload": fn(Handle);
    function = "cuModuleGetFunction": fn(*mut Handle, Handle, *const c_char);
    alloc = "cuMemAlloc_v2": fn(*mut u64, usize);
    free = "cuMemFree_v2": fn(u64);
    to_gpu = "cuMemcpyHtoD_v2": fn(u64, *const c_void, usize);
    from_gpu = "cuMemcpyDtoH_v2": fn(*mut c_void, u64, usize);
    between = "cuMemcpyDtoDAsync_v2": fn(u64, u64, usize, Handle);
    peer = "cuMemcpyPeerAsync": fn(u64, Handle, u64, Handle, usize, Handle);
    can_access = "cuDeviceCanAccessPeer": fn(*mut c_int, c_int, c_int);
    set = "cuMemsetD32_v2": fn(u64, c_uint, usize);
    launch = "cuLaunchKernel": fn(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
}

/// CUdevice_attribute values.
mod attribute {
    pub(super) const CLOCK: i32 = 13;
    pub(super) const MULTIPROCESSORS: i32 = 16;
    pub(super) const MEMORY_CLOCK: i32 = 36;
    pub(super) const BUS_WIDTH: i32 = 37;
    pub(super) const MAJOR: i32 = 75;
    pub(super) const MINOR: i32 = 76;
}

/// The loaded library.
pub struct Cuda {
    call: Functions,
    /// Unloaded last.
    _library: Library,
}

impl Cuda {
    /// Loads the library of the driver below `roots` and initialises it.
    pub fn open(roots: &Roots) -> Result<Self> {
        let file = roots.library("libcuda.so.1").ok_or_else(|| Error::Call {
            call: "libcuda.so.1",
            why: format!("it is not below {}; are the driver's libraries injected?", roots.here.display()),
        })?;
        Self::open_file(&file)
    }

    fn open_file(file: &Path) -> Result<Self> {
        // SAFETY: opening it runs the driver's own start-up code, which is why we are here.
        let library = unsafe { Library::new(file) }
            .map_err(|error| Error::Call { call: "libcuda.so.1", why: format!("{}: {error}", file.display()) })?;
        let cuda = Self { call: Functions::load(&library)?, _library: library };
        // SAFETY: the first call, as CUDA wants it.
        cuda.check("cuInit", unsafe { (cuda.call.init)(0) })?;
        Ok(cuda)
    }

    fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let mut text: *const c_char = ptr::null();
        // SAFETY: the driver points us to a text of its own, which stays for good.
        let why = unsafe {
            match (self.call.error_string)(code, &mut text) {
                0 if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
                _ => "unknown error".to_owned(),
            }
        };
        Err(Error::Call { call, why: format!("{why} ({code})") })
    }

    /// The GPUs that are visible to this process.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let mut count = 0;
        // SAFETY: the output is ours.
        self.check("cuDeviceGetCount", unsafe { (self.call.count)(&mut count) })?;
        (0..count).map(|ordinal| self.device(ordinal)).collect()
    }

    fn device(&self, ordinal: i32) -> Result<Device> {
        let (mut handle, mut name, mut uuid, mut memory) = (0, [0u8; 256], [0u8; 16], 0);
        // SAFETY: outputs are ours, of the sizes that are passed along.
        unsafe {
            self.check("cuDeviceGet", (self.call.device)(&mut handle, ordinal))?;
            self.check("cuDeviceGetName", (self.call.name)(name.as_mut_ptr().cast(), 255, handle))?;
            self.check("cuDeviceGetUuid", (self.call.uuid)(&mut uuid, handle))?;
            self.check("cuDeviceTotalMem", (self.call.memory)(&mut memory, handle))?;
        }
        let number = |which| self.attribute(handle, which);
        let name = CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let kind = if name.contains(" MIG ") { "MIG" } else { "GPU" };
        Ok(Device {
            ordinal,
            uuid: [kind, &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"),
            name,
            memory: memory as u64,
            multiprocessors: number(attribute::MULTIPROCESSORS)?,
            compute: (number(attribute::MAJOR)?, number(attribute::MINOR)?),
            clock: number(attribute::CLOCK)?,
            memory_clock: number(attribute::MEMORY_CLOCK)?,
            bus_width: number(attribute::BUS_WIDTH)?,
        })
    }

    fn attribute(&self, device: c_int, which: i32) -> Result<u32> {
        let mut value = 0;
        // SAFETY: the output is ours.
        self.check("cuDeviceGetAttribute", unsafe { (self.call.attribute)(&mut value, which, device) })?;
        Ok(u32::try_from(value).unwrap_or_default())
    }

    /// Whether a GPU can access another's memory (peer access).
    pub fn can_access(&self, from: &Device, to: &Device) -> Result<bool> {
        let mut can = 0;
        // SAFETY: the output is ours.
        self.check("cuDeviceCanAccessPeer", unsafe { (self.call.can_access)(&mut can, from.ordinal, to.ordinal) })?;
        Ok(can != 0)
    }

    /// Retains the primary context of a GPU, for the calling thread.
    pub fn context(&self, device: &Device) -> Result<Context<'_>> {
        let mut handle: Handle = ptr::null_mut();
        // SAFETY: the output is ours; the context is released on drop.
        unsafe {
            self.check("cuDevicePrimaryCtxRetain", (self.call.retain)(&mut handle, device.ordinal))?;
            let context = Context { cuda: self, device: device.ordinal, handle };
            context.enter()?;
            Ok(context)
        }
    }
}

/// The primary context of a GPU.
pub struct Context<'c> {
    cuda: &'c Cuda,
    device: c_int,
    handle: Handle,
}

impl<'c> Context<'c> {
    /// Makes it the current context of this thread.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the context is alive as long as we are.
        self.cuda.check("cuCtxSetCurrent", unsafe { (self.cuda.call.use_context)(self.handle) })
    }

    /// Compiles a module and looks up one function.
    pub fn function(&self, code: &CStr, name: &str) -> Result<Function<'_>> {
        let (mut module, mut function): (Handle, Handle) = (ptr::null_mut(), ptr::null_mut());
        let name = CString::new(name)
            .map_err(|_| Error::Call { call: "cuModuleGetFunction", why: "a zero byte in a name".into() })?;
        // SAFETY: code and name end in a zero byte; the module is unloaded on drop, also if it lacks the function.
        unsafe {
            let load = self.cuda.call.load_module;
            self.cuda.check("cuModuleLoadData", load(&mut module, code.as_ptr().cast()))?;
            let mut found = Function { cuda: self.cuda, module, function, context: self };
            self.cuda.check("cuModuleGetFunction", (self.cuda.call.function)(&mut function, module, name.as_ptr()))?;
            found.function = function;
            Ok(found)
        }
    }

    /// Allocates device memory.
    pub fn alloc(&self, bytes: usize) -> Result<Buffer<'_>> {
        let mut address = 0;
        // SAFETY: the output is ours; freed on drop.
        self.cuda.check("cuMemAlloc", unsafe { (self.cuda.call.alloc)(&mut address, bytes) })?;
        Ok(Buffer { context: self, address, bytes })
    }

    /// Allocates device memory and copies these values to it.
    pub fn upload(&self, numbers: &[f32]) -> Result<Buffer<'_>> {
        let buffer = self.alloc(size_of_val(numbers))?;
        let to_gpu = self.cuda.call.to_gpu;
        // SAFETY: both sides have the size of the slice.
        let code = unsafe { to_gpu(buffer.address, numbers.as_ptr().cast(), buffer.bytes) };
        self.cuda.check("cuMemcpyHtoD", code)?;
        Ok(buffer)
    }

    /// Waits for all started work.
    pub fn synchronise(&self) -> Result<()> {
        // SAFETY: no arguments.
        self.cuda.check("cuCtxSynchronize", unsafe { (self.cuda.call.synchronise)() })
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: retained once, released once.
        unsafe { (self.cuda.call.release)(self.device) };
    }
}

/// A kernel.
pub struct Function<'c> {
    cuda: &'c Cuda,
    module: Handle,
    function: Handle,
    context: &'c Context<'c>,
}

impl Function<'_> {
    /// Launches it on this many blocks and threads. The arguments must match the kernel's declaration: an invalid
    /// address is reported by the next [`Context::synchronise`].
    pub fn launch(&self, blocks: u32, threads: u32, arguments: &[Argument]) -> Result<()> {
        self.context.enter()?;
        let mut values: Vec<u64> = arguments.iter().map(bits).collect();
        let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|value| ptr::from_mut(value).cast()).collect();
        let nothing = ptr::null_mut();
        // SAFETY: one pointer per declared argument, each to eight bytes that live across the call, which copies
        // them. On the little-endian machines that CUDA runs on, a shorter argument is their beginning.
        let code = unsafe {
            let launch = self.cuda.call.launch;
            launch(self.function, blocks, 1, 1, threads, 1, 1, 0, nothing, pointers.as_mut_ptr(), ptr::null_mut())
        };
        self.cuda.check("cuLaunchKernel", code)
    }
}

fn bits(argument: &Argument) -> u64 {
    match *argument {
        Argument::Address(address) => address,
        Argument::U32(number) => number.into(),
        Argument::F32(number) => number.to_bits().into(),
    }
}

impl Drop for Function<'_> {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once.
        unsafe { (self.cuda.call.unload_module)(self.module) };
    }
}

/// Device memory.
pub struct Buffer<'c> {
    context: &'c Context<'c>,
    address: u64,
    bytes: usize,
}

impl Buffer<'_> {
    /// Its address, as kernel argument.
    pub fn argument(&self) -> Argument {
        Argument::Address(self.address)
    }

    /// Fills it with one 32-bit pattern.
    pub fn fill(&self, pattern: u32) -> Result<()> {
        let cuda = self.context.cuda;
        // SAFETY: whole words inside the buffer.
        cuda.check("cuMemsetD32", unsafe { (cuda.call.set)(self.address, pattern, self.bytes / 4) })
    }

    /// Starts a copy to a buffer of the same GPU.
    pub fn copy_to(&self, to: &Buffer<'_>) -> Result<()> {
        let cuda = self.context.cuda;
        let bytes = self.bytes.min(to.bytes);
        // SAFETY: within both.
        let code = unsafe { (cuda.call.between)(to.address, self.address, bytes, ptr::null_mut()) };
        cuda.check("cuMemcpyDtoDAsync", code)
    }

    /// Starts a copy to a buffer of another GPU.
    pub fn copy_to_peer(&self, to: &Buffer<'_>) -> Result<()> {
        let cuda = self.context.cuda;
        let bytes = self.bytes.min(to.bytes);
        let (from_here, to_there) = (self.context.handle, to.context.handle);
        // SAFETY: within both; both contexts are alive.
        let code = unsafe { (cuda.call.peer)(to.address, to_there, self.address, from_here, bytes, ptr::null_mut()) };
        cuda.check("cuMemcpyPeerAsync", code)
    }

    /// Waits for started work and copies the content to the host.
    pub fn download(&self) -> Result<Vec<f32>> {
        let cuda = self.context.cuda;
        let mut numbers = vec![0f32; self.bytes / 4];
        // SAFETY: whole words inside both.
        let code = unsafe { (cuda.call.from_gpu)(numbers.as_mut_ptr().cast(), self.address, numbers.len() * 4) };
        cuda.check("cuMemcpyDtoH", code)?;
        Ok(numbers)
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated once, freed once.
        unsafe { (self.context.cuda.call.free)(self.address) };
    }
}
